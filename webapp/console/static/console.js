// Live updates of one page: an event stream says when what the page shows has changed, and htmx replaces it. Without a
// stream the page is requested again every few seconds. Figures that could not be updated are marked as stale.
(() => {
  "use strict";

  const live = document.getElementById("live");
  const notice = document.getElementById("notice");

  // Tick or untick all rows of a table.
  document.addEventListener("change", (event) => {
    const all = event.target.closest("[data-all]");
    if (!all) return;
    for (const box of all.closest("table").querySelectorAll("input[name=seq]")) box.checked = all.checked;
  });

  if (!live?.dataset.of) return;

  const pollSeconds = Number(live.dataset.poll);
  const silentAfter = 40_000; // milliseconds without a beat, which an open stream sends every 15 s
  const staleAfter = 3 * pollSeconds * 1000; // without a stream
  let stream = null;
  let polling = null;
  let confirmedAt = Date.now();
  let isStale = false;
  let isWaiting = false; // an update waits until the page is no longer in use
  let isEnded = false; // the session is over

  const say = (text) => {
    if (notice.textContent !== text) notice.textContent = text;
  };

  const confirm = () => {
    confirmedAt = Date.now();
    if (!isStale) return;
    isStale = false;
    document.body.classList.remove("stale");
    say(notice.dataset.fresh);
  };

  const markStale = () => {
    const allowed = stream?.readyState === EventSource.OPEN ? silentAfter : staleAfter;
    if (isEnded || isStale || Date.now() - confirmedAt < allowed) return;
    isStale = true;
    document.body.classList.add("stale");
    const at = new Date(confirmedAt).toISOString().slice(11, 19);
    say(notice.dataset.stale.replace("{time}", at));
  };

  // A page in use is not replaced under the hands of its reader: not while a field of it is being filled.
  const isBusy = () => {
    const field = document.activeElement;
    if (field && live.contains(field) && field.matches("input:not([type=checkbox]), textarea, select")) return true;
    return live.querySelector("input[name=seq]:checked, [data-all]:checked") !== null;
  };

  // Another page of this browser may have kept the session, whose cookie the stream was opened with.
  const checkSession = async () => {
    const response = await fetch(live.dataset.of, { headers: { "HX-Request": "true" } }).catch(() => null);
    if (response?.status === 401) end();
    else if (response?.ok) open();
    else refused();
  };

  const refused = () => {
    startPolling();
    setTimeout(open, 60000);
  };

  const end = () => {
    isEnded = true;
    close();
    stopPolling();
    document.body.classList.add("stale");
    say(notice.dataset.ended);
    document.getElementById("ended").hidden = false;
  };

  const update = () => {
    if (document.hidden || isEnded) return;
    isWaiting = isBusy();
    if (isWaiting) {
      if (!isStale) say(notice.dataset.paused);
      return;
    }
    if (notice.textContent === notice.dataset.paused) say("");
    live.dispatchEvent(new CustomEvent("tidings:changed"));
  };

  const startPolling = () => {
    if (polling === null) polling = setInterval(update, pollSeconds * 1000);
  };

  const stopPolling = () => {
    clearInterval(polling);
    polling = null;
  };

  const open = () => {
    if (stream || document.hidden || isEnded) return;
    const query = new URLSearchParams({ of: live.dataset.of, since: live.dataset.digest });
    stream = new EventSource(`/console/stream?${query}`);
    stream.addEventListener("open", () => {
      stopPolling();
      confirm();
    });
    stream.addEventListener("changed", (event) => {
      confirm();
      if (event.data !== live.dataset.digest) update();
    });
    stream.addEventListener("beat", confirm);
    stream.addEventListener("ended", () => {
      close();
      checkSession();
    });
    stream.addEventListener("error", () => {
      // A closed stream was refused; an open one connects again by itself.
      if (stream && stream.readyState === EventSource.CLOSED) {
        close();
        refused();
      }
    });
  };

  const close = () => {
    if (stream) stream.close();
    stream = null;
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      stopPolling();
    } else {
      confirmedAt = Date.now();
      update();
      open();
    }
  });

  document.addEventListener("htmx:after:request", (event) => {
    const response = event.detail?.ctx?.response;
    if (response?.status === 200) confirm();
    if (response?.status === 401) end();
  });

  setInterval(() => {
    markStale();
    if (isWaiting && !isBusy()) update();
  }, 1000);

  addEventListener("pagehide", close);
  open();
})();
