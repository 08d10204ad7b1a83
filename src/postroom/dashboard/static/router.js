/**
 * Addresses: `#/view`, `#/view/NAME` and filters behind `?`. No secret ever stands in one.
 *
 * A step to another view is an entry of the browser's history; what is picked in a view replaces the entry, so that Back
 * leads to the view one came from, with its row.
 */

/** @typedef {{view: string, name: string, filters: URLSearchParams}} Place */

/** @param {string} hash @returns {Place} */
export function placeOf(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [view, ...rest] = path.split("/");
  let name = rest.join("/");
  try {
    name = decodeURIComponent(name);
  } catch {} // not written by this page: taken as it is
  return { view: view || "waiting", name, filters: new URLSearchParams(query) };
}

/** @param {string} view @param {string} [name] @param {Record<string, string | undefined | null>} [filters] @returns {string} */
export function addressOf(view, name = "", filters = {}) {
  const kept = Object.entries(filters).filter((/** @type {[string, any]} */ [, value]) => value);
  const query = new URLSearchParams(/** @type {[string, string][]} */ (kept)).toString();
  return `#/${view}${name ? `/${encodeURIComponent(name)}` : ""}${query ? `?${query}` : ""}`;
}

/** @param {string} address */
export function go(address) {
  if (location.hash !== address) location.hash = address;
}

/** Change the address of the place one is at. @param {string} address */
export function stay(address) {
  if (location.hash !== address) history.replaceState(history.state, "", address);
}
