/** Light or dark, before the first paint: a classic script, because a module would come too late. */
"use strict";
(() => {
  try {
    const scheme = localStorage.getItem("postroom.scheme");
    if (scheme === "light" || scheme === "dark") document.documentElement.dataset.scheme = scheme;
  } catch {} // without storage, as the system says
})();
