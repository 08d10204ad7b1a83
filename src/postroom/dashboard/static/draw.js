/** When the page is drawn: once for each frame in which something changed, and never while nobody sees it. */

let asked = false;
/** @type {() => void} */
let draw = () => {};

/** @param {() => void} how */
export function drawWith(how) {
  draw = how;
}

/** Draw the page with the next frame. */
export function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    draw();
  });
}
