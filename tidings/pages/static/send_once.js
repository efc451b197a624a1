// A key that is held down or a double click sends a form once. Another form of the page can be sent meanwhile, and so can
// the same form once the page has been left and shown again.
(() => {
  "use strict";
  const PAUSE = 5_000; // milliseconds before the same form is sent again
  let sentAt = new WeakMap(); // by form
  addEventListener("pageshow", () => (sentAt = new WeakMap()));
  document.addEventListener("submit", (event) => {
    if (Date.now() - (sentAt.get(event.target) ?? -PAUSE) < PAUSE) event.preventDefault();
    else sentAt.set(event.target, Date.now());
  });
})();
