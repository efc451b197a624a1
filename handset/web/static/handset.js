// Live updates, and what makes the page quicker to use. Everything works without it.
(() => {
  "use strict";
  const SILENT = 40_000; // milliseconds without a beat after which the page counts as stale
  const POLL = 5_000; // between loads of a page without a stream
  const AGAIN = 30_000; // before a refused stream is tried again
  const body = document.body;
  const said = document.getElementById("said");
  const stale = document.getElementById("stale");
  const address = body.dataset.stream;
  let stream = null;
  let heard = Date.now();
  let waiting = false;
  let refused = 0;

  const say = (text) => {
    if (said && text) said.textContent = text;
  };

  // Loads the list and the messages again; htmx listens for this event.
  const changed = () => {
    if (waiting || document.hidden) return;
    waiting = true;
    setTimeout(() => {
      waiting = false;
      body.dispatchEvent(new CustomEvent("tidings:changed"));
    }, 150);
  };

  const mark = (isStale) => {
    if (!stale || stale.hidden !== isStale) return;
    stale.hidden = !isStale;
    body.classList.toggle("is-stale", isStale);
    if (isStale) say(stale.textContent);
  };

  const live = () => {
    heard = Date.now();
    mark(false);
  };

  const open = () => {
    if (!address || stream || document.hidden) return;
    stream = new EventSource(address);
    stream.addEventListener("open", () => {
      refused = 0;
      live();
    });
    stream.addEventListener("beat", live);
    for (const name of ["changed", "reset"]) {
      stream.addEventListener(name, () => {
        live();
        changed();
      });
    }
    stream.addEventListener("error", () => {
      if (stream && stream.readyState === EventSource.CLOSED) {
        stream = null;
        refused = Date.now();
      }
    });
  };

  const close = () => {
    if (stream) stream.close();
    stream = null;
  };

  if (address) {
    open();
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        close();
      } else {
        open();
        changed();
      }
    });
    setInterval(() => {
      if (document.hidden) return;
      if (!stream && Date.now() - refused > AGAIN) open();
      if (!stream || stream.readyState !== EventSource.OPEN) changed();
      mark(Date.now() - heard > SILENT);
    }, POLL);
  }

  // Messages: stay at the end while they or the window change their height, and announce what has arrived.
  const scroll = document.querySelector(".scroll");
  const list = document.getElementById("messages");
  let isAtEnd = !location.hash || location.hash === "#end";
  if (list) {
    // The event of a scroll to the end can come after messages have grown: only one upwards leaves the end.
    let top = 0;
    scroll.addEventListener("scroll", () => {
      const isNear = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 120;
      isAtEnd = isNear || (isAtEnd && scroll.scrollTop >= top);
      top = scroll.scrollTop;
    });
    const keeper = new ResizeObserver(() => {
      if (isAtEnd) scroll.scrollTop = scroll.scrollHeight;
    });
    for (const each of [list, scroll]) keeper.observe(each);
  }
  const newest = () => [...document.querySelectorAll("#messages > .message")].at(-1);
  let last = newest()?.id;
  document.addEventListener("htmx:after:request", (event) => {
    const response = event.detail.ctx?.response?.raw;
    if (response?.ok) live();
    if (response?.status !== 403) return;
    stale.textContent = stale.dataset.ended;
    mark(true);
  });
  document.addEventListener("htmx:after:swap", () => {
    const item = newest();
    if (!item || item.id === last) return;
    last = item.id;
    say(item.dataset.said);
  });

  // The composer: Enter sends, the field grows, files can be dropped and pasted.
  const composer = document.getElementById("composer");
  const text = document.getElementById("text");
  const file = document.getElementById("file");
  if (composer && text) {
    const grow = () => {
      text.rows = Math.min(6, Math.max(1, text.value.split("\n").length));
    };
    text.addEventListener("input", grow);
    grow();
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        if (text.value.trim() || file.files.length) composer.requestSubmit();
      }
    });
    // The browser takes the focus away when it scrolls to the fragment of the URL, after the page has loaded.
    const isKept = () => matchMedia("(pointer: coarse)").matches || document.activeElement !== body;
    const begin = () => isKept() || text.focus({ preventScroll: true });
    if (location.hash === "#end") addEventListener("load", () => setTimeout(begin));
    const dropped = document.getElementById("dropped");
    const take = (files) => {
      if (!files.length) return;
      const first = new DataTransfer(); // a message has one file
      first.items.add(files[0]);
      file.files = first.files;
      dropped.textContent = `${files[0].name} ${dropped.dataset.goes}`;
      dropped.hidden = false;
      say(dropped.textContent);
      text.focus();
    };
    const main = document.getElementById("main");
    const hasFiles = (event) => event.dataTransfer.types.includes("Files");
    for (const name of ["dragover", "dragenter"]) {
      main.addEventListener(name, (event) => {
        if (hasFiles(event)) event.preventDefault();
        main.classList.toggle("is-target", hasFiles(event));
      });
    }
    main.addEventListener("dragleave", () => main.classList.remove("is-target"));
    main.addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      main.classList.remove("is-target");
      take(event.dataTransfer.files);
    });
    text.addEventListener("paste", (event) => take(event.clipboardData.files));
    file.addEventListener("change", () => {
      dropped.hidden = true; // after a cancelled dialogue it stays so
      take(file.files);
    });
  }

  // Codes are copied, and the form that would show this is not sent.
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (!button || !navigator.clipboard) return;
    event.preventDefault();
    navigator.clipboard.writeText(button.dataset.copy).then(
      () => say(said.dataset.copied),
      () => say(said.dataset.refused),
    );
  });

  // One menu is open at a time; Escape closes it.
  const menus = () => document.querySelectorAll("details.menu[open], details.attach[open]");
  document.addEventListener("click", (event) => {
    for (const menu of menus()) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of menus()) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
})();
