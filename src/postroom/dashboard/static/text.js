/**
 * Text that others wrote, made safe to look at: words for times and amounts, and Markdown as agents write it.
 *
 * Every name, subject and body goes through `visible` before it is shown: characters that hide or reorder text are
 * written out, as the command line writes them out. What is shown is always a text node, and nothing is fetched: an
 * image is its description and address, and a link shows its whole address. What is no markup stays as it was written.
 * The work is linear in the length of the text: each pattern stops at the next character that could begin another one,
 * and divides no run of characters in more than one way; after BUDGET elements all is plain text. A line of mixed
 * right-to-left text costs the browser the square of its length, so no element holds more than PIECE characters.
 */

import { HIDDEN } from "./hidden.js";

// -- text and words

/** @param {unknown} text @returns {string} the text with every hiding or reordering character as an escape */
export function visible(text) {
  return String(text ?? "").replace(HIDDEN, (found) => `\\u{${(found.codePointAt(0) ?? 0).toString(16)}}`);
}

/** @param {unknown} text @param {number} [most] @returns {string} the text on one line, cut */
export function oneLine(text, most = 200) {
  const whole = String(text ?? "");
  const line = visible(
    head(whole, most * 2)
      .replace(/\s+/g, " ")
      .trim(),
  );
  return line.length > most || whole.length > most * 2 ? `${head(line, most)}…` : line;
}

/** @param {string} text @param {number} most @returns {string} its beginning, with no half of a surrogate pair */
export function head(text, most) {
  if (text.length <= most) return text;
  const code = text.charCodeAt(most - 1);
  return text.slice(0, code >= 0xd800 && code < 0xdc00 ? most - 1 : most);
}

/**
 * @param {string} text
 * @param {number} most
 * @returns {string[]} the text in pieces, cut at blanks where there are some
 */
export function pieces(text, most = 2000) {
  const found = [];
  let rest = text;
  while (rest.length > most) {
    const piece = head(rest, most);
    const blank = piece.lastIndexOf(" ");
    const end = blank > most / 2 ? blank + 1 : piece.length;
    found.push(rest.slice(0, end));
    rest = rest.slice(end);
  }
  found.push(rest);
  return found;
}

/** Units of time, each with its seconds and the number from which on the next one is used, as in the terminal. */
const UNITS = /** @type {const} */ ([
  ["s", 1, 90],
  ["min", 60, 90],
  ["h", 3600, 36],
  ["d", 86400, Infinity],
]);

/** @param {number} seconds @returns {string} a length of time in one unit, rounded */
export function duration(seconds) {
  const [unit, size] = UNITS.find(([, each, most]) => seconds < each * most) ?? UNITS[0];
  return `${Math.round(Math.max(0, seconds) / size)} ${unit}`;
}

/** @param {string | null | undefined} at @param {number} [now] @returns {string} how long ago, or in how long */
export function ago(at, now = Date.now()) {
  if (!at) return "";
  const seconds = (now - Date.parse(at)) / 1000;
  if (Number.isNaN(seconds)) return "";
  if (seconds < -1) return `in ${duration(-seconds)}`;
  return seconds < 2 ? "now" : duration(seconds);
}

/** The states of a task that is under way, in the order of the board. @type {Record<string, string>} */
export const STATES = {
  pending: "not accepted yet",
  accepted: "accepted",
  working: "at work",
  input_required: "has a question",
};

/** @param {string} at @returns {string} how long ago, for the end of a sentence */
export function past(at) {
  const words = ago(at);
  return words === "now" ? "just now" : `${words} ago`;
}

/**
 * @param {string | number | null | undefined} at
 * @returns {string} the time of day, with the date if it is not today's
 */
export function clockTime(at) {
  if (!at) return "";
  const moment = new Date(at);
  const time = moment.toLocaleTimeString("en-GB");
  return moment.toDateString() === new Date().toDateString() ? time : `${moment.toLocaleDateString("en-CA")} ${time}`;
}

/** @param {number | null | undefined} many @returns {string} */
export function amount(many) {
  return (many ?? 0).toLocaleString("en-US");
}

/** @param {number} many @param {string} one @param {string} [more] @returns {string} `1 letter`, `2 letters` */
export function counted(many, one, more = `${one}s`) {
  return `${amount(many)} ${many === 1 ? one : more}`;
}

/** @param {number} bytes @returns {string} */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

/**
 * @param {unknown} address
 * @returns {string | null} the address if a letter may link to it: http and https alone, and never this page, or any
 *   other with the code of a visit, which a click would enter with
 */
export function webAddress(address) {
  if (typeof address !== "string" || !/^https?:\/\/[^\s<>"']{1,2000}$/i.test(address) || !URL.canParse(address))
    return null;
  const { origin, hash } = new URL(address);
  return origin === location.origin || /^#code=/i.test(hash) ? null : address;
}

/** @param {unknown} name @returns {string} a name that is safe on every disk */
export function safeFileName(name) {
  const last =
    String(name ?? "")
      .split(/[/\\]/)
      .pop() ?? "";
  return (
    last
      .replace(/[^A-Za-z0-9._-]+/g, "_")
      .replace(/^[._]+/, "")
      .slice(-100) || "attachment"
  );
}

// -- Markdown

/**
 * @typedef {{kind: "text" | "code", text: string} | {kind: "strong" | "em" | "del", of: Inline[]}
 *   | {kind: "link", label: Inline[], address: string}} Inline
 * @typedef {{kind: "heading", level: number, of: Inline[]} | {kind: "paragraph", of: Inline[][]}
 *   | {kind: "code", word: string, text: string} | {kind: "rule"} | {kind: "quote", of: Block[]}
 *   | {kind: "list", ordered: boolean, start: number, items: Item[]}
 *   | {kind: "table", head: Inline[][], rows: Inline[][][]}} Block
 * @typedef {{done: boolean | null, of: Block[]}} Item
 */

export const PIECE = 2000; // characters in one element
export const BUDGET = 4000; // elements of one text
const DEEPEST = 6; // lists and quotes in one another
const MOST_COLUMNS = 40;
const LONGEST = 500; // characters of a line that begins something; a longer one is text

// Against lines without blanks at their end. No two neighbours of a pattern match the same character: one that could
// divide a run of blanks in many ways would try them all.
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]{0,30})$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const BULLET = /^(\s{0,12})([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const DIVIDER = /^:?-+:?$/; // of one column
const STARTS = [FENCE, HEADING, RULE, BULLET, QUOTE];
const BOX = /^\[([ xX])\]\s+/;

// At a character that may begin something. Each stops at the next such character, or after so many.
const CODE = /(`{1,3})([^`\n]{1,1000})\1(?!`)/y;
const STRONG = /\*\*(?=\S)((?:[^*\n]|\*(?!\*)){1,1000}?)\*\*|__(?=\S)([^_\n]{1,1000})__(?!\w)/y;
const EM = /\*(?=[^\s*])([^*\n]{1,1000})\*|_(?=[^\s_])([^_\n]{1,1000})_(?!\w)/y;
const DEL = /~~(?=\S)([^~\n]{1,1000})~~/y;
const LINK = /!?\[([^[\]\n]{0,500})\]\(\s*([^\s()<>[\]]{1,2000})\s*\)/y;
const BARE = /https?:\/\/[^\s<>()[\]"'`|*]{1,2000}/iy;
const PLAIN = /[^`*_~![hH\\]+/y;
const WORD = /\w/;

class Parser {
  budget = BUDGET;

  /** @param {string[]} lines @param {number} depth @returns {Block[]} */
  blocks(lines, depth) {
    /** @type {Block[]} */
    const found = [];
    for (let at = 0; at < lines.length;) {
      const line = lines[at];
      if (!line.trim()) {
        at += 1;
        continue;
      }
      this.budget -= 1;
      if (this.budget <= 0 || depth > DEEPEST) {
        found.push({ kind: "code", word: "", text: lines.slice(at).join("\n") });
        return found;
      }
      at =
        this.fence(lines, at, found) ??
        this.oneLine(line, at, found) ??
        this.table(lines, at, found) ??
        this.quote(lines, at, depth, found) ??
        this.list(lines, at, depth, found) ??
        this.paragraph(lines, at, found);
    }
    return found;
  }

  /** @param {string[]} lines @param {number} at @param {Block[]} found @returns {number | undefined} */
  fence(lines, at, found) {
    const open = begins(FENCE, lines[at]);
    if (!open) return undefined;
    let end = at + 1;
    while (
      end < lines.length &&
      !(
        lines[end].trimStart().startsWith(open[1]) &&
        !lines[end].trim().slice(open[1].length).replaceAll(open[1][0], "")
      )
    )
      end += 1;
    found.push({ kind: "code", word: open[2], text: lines.slice(at + 1, end).join("\n") });
    return end + 1;
  }

  /** @param {string} line @param {number} at @param {Block[]} found @returns {number | undefined} */
  oneLine(line, at, found) {
    const heading = begins(HEADING, line);
    if (heading)
      found.push({ kind: "heading", level: heading[1].length, of: this.inline(heading[2].replace(/[ \t]#+$/, "")) });
    else if (begins(RULE, line)) found.push({ kind: "rule" });
    else return undefined;
    return at + 1;
  }

  /** @param {string[]} lines @param {number} at @param {Block[]} found @returns {number | undefined} */
  table(lines, at, found) {
    const under = lines[at + 1] ?? "";
    if (!lines[at].includes("|") || under.length >= LONGEST) return undefined;
    const columns = cellsOf(under);
    const many = columns.length;
    if (many > MOST_COLUMNS || !columns.every((one) => DIVIDER.test(one)) || cellsOf(lines[at]).length !== many)
      return undefined;
    const heads = this.cells(lines[at], many);
    const rows = [];
    let end = at + 2;
    for (; end < lines.length && lines[end].includes("|") && this.budget > 0; end += 1) {
      const row = this.cells(lines[end], many);
      while (row.length < heads.length) row.push([]);
      rows.push(row);
    }
    found.push({ kind: "table", head: heads, rows });
    return end;
  }

  /**
   * @param {string} line
   * @param {number} many
   * @returns {Inline[][]} its cells; what is too many stays in the last one
   */
  cells(line, many) {
    const cells = cellsOf(line);
    if (cells.length > many) cells.push(cells.splice(many - 1).join(" | "));
    this.budget -= cells.length;
    return cells.map((cell) => (cell.length > PIECE ? [{ kind: "text", text: cell }] : this.inline(cell)));
  }

  /**
   * @param {string[]} lines
   * @param {number} at
   * @param {number} depth
   * @param {Block[]} found
   * @returns {number | undefined}
   */
  quote(lines, at, depth, found) {
    const inner = [];
    let end = at;
    for (let quoted; end < lines.length && (quoted = QUOTE.exec(lines[end])); end += 1) inner.push(quoted[1]);
    if (end === at) return undefined;
    found.push({ kind: "quote", of: this.blocks(inner, depth + 1) });
    return end;
  }

  /**
   * @param {string[]} lines
   * @param {number} at
   * @param {number} depth
   * @param {Block[]} found
   * @returns {number | undefined}
   */
  list(lines, at, depth, found) {
    const first = BULLET.exec(lines[at]);
    if (!first) return undefined;
    const edge = first[1].length;
    const ordered = /\d/.test(first[2]);
    /** @type {Item[]} */
    const items = [];
    let end = at;
    while (end < lines.length && this.budget > 0) {
      const begun = BULLET.exec(lines[end]);
      if (!begun || begun[1].length !== edge || /\d/.test(begun[2]) !== ordered) break;
      const box = BOX.exec(begun[3]);
      const inner = [box ? begun[3].slice(box[0].length) : begun[3]];
      for (end += 1; end < lines.length; end += 1) {
        const line = lines[end];
        const deeper = line.length - line.trimStart().length > edge;
        const goesOn = line.trim() ? deeper : deeper || /^\s/.test(lines[end + 1] ?? "");
        if (!goesOn) break;
        inner.push(line.slice(Math.min(edge + 2, line.length - line.trimStart().length)));
      }
      items.push({ done: box ? box[1] !== " " : null, of: this.blocks(inner, depth + 1) });
    }
    found.push({ kind: "list", ordered, start: ordered ? Number.parseInt(first[2], 10) : 1, items });
    return Math.max(end, at + 1);
  }

  /** @param {string[]} lines @param {number} at @param {Block[]} found @returns {number} */
  paragraph(lines, at, found) {
    let end = at + 1;
    while (end < lines.length && lines[end].trim() && !STARTS.some((start) => begins(start, lines[end]))) end += 1;
    const text = lines.slice(at, end).join("\n");
    found.push({ kind: "paragraph", of: pieces(text, PIECE).map((piece) => this.inline(piece)) });
    return end;
  }

  /**
   * @param {string} text
   * @param {number} depth
   * @param {boolean} inLabel of a link: no link within
   * @returns {Inline[]}
   */
  inline(text, depth = 0, inLabel = false) {
    if (depth > 3) return [{ kind: "text", text }];
    /** @type {Inline[]} */
    const found = [];
    let plain = "";
    for (let at = 0; at < text.length;) {
      const match = this.budget > 0 ? matched(text, at) : null;
      if (!match) {
        PLAIN.lastIndex = at;
        const run = PLAIN.exec(text)?.[0] ?? text[at];
        plain += run;
        at += run.length;
        continue;
      }
      if (plain) found.push({ kind: "text", text: plain });
      plain = "";
      this.budget -= 1;
      const [kind, inner, length, address] = match;
      if (kind === "code") found.push({ kind, text: inner });
      else if (kind === "text") plain = inner;
      else if (kind !== "link") found.push({ kind, of: this.inline(inner, depth + 1, inLabel) });
      else if (inLabel) plain = text.slice(at, at + length);
      else found.push({ kind, label: this.inline(inner, depth + 1, true), address: address ?? "" });
      at += length;
    }
    if (plain) found.push({ kind: "text", text: plain });
    return found;
  }
}

/**
 * @param {string} text @param {number} at
 * @returns {["code" | "text" | "strong" | "em" | "del" | "link", string, number, string?] | null}
 */
function matched(text, at) {
  /** @param {RegExp} pattern */
  const here = (pattern) => {
    pattern.lastIndex = at;
    return pattern.exec(text);
  };
  const inWord = at > 0 && WORD.test(text[at - 1]);
  let hit;
  switch (text[at]) {
    case "\\":
      return /[\\`*_~![\]()#|<>-]/.test(text[at + 1] ?? "") ? ["text", text[at + 1], 2] : null;
    case "`":
      return (hit = here(CODE)) ? ["code", hit[2], hit[0].length] : null;
    case "*":
    case "_":
      if (text[at] === "_" && inWord) return null; // a name like snake_case_word
      if ((hit = here(STRONG))) return ["strong", hit[1] ?? hit[2], hit[0].length];
      return (hit = here(EM)) ? ["em", hit[1] ?? hit[2], hit[0].length] : null;
    case "~":
      return (hit = here(DEL)) ? ["del", hit[1], hit[0].length] : null;
    case "!":
    case "[":
      return (hit = here(LINK)) ? ["link", hit[1], hit[0].length, hit[2]] : null;
    case "h":
    case "H": {
      if (inWord || !(hit = here(BARE))) return null;
      let end = hit[0].length;
      while (".,;:!?".includes(hit[0][end - 1])) end -= 1; // they end the sentence
      return ["link", "", end, hit[0].slice(0, end)];
    }
    default:
      return null;
  }
}

/**
 * @param {RegExp} start
 * @param {string} line
 * @returns {RegExpExecArray | null} how the line begins a block of a kind
 */
function begins(start, line) {
  if (start === BULLET || start === QUOTE) return start.exec(line);
  return line.length < LONGEST ? start.exec(line.trimEnd()) : null;
}

/** @param {string} line @returns {string[]} the cells of a row of a table */
function cellsOf(line) {
  return line
    .trim()
    .replace(/^\|/, "")
    .replace(/\|$/, "")
    .split("|")
    .map((cell) => cell.trim());
}

/** @param {string} text @returns {Block[]} */
export function parse(text) {
  // Of the other ends of a line, which no pattern here passes over, the reader sees the name.
  return new Parser().blocks(text.replace(/[\u0085\u2028\u2029]/g, visible).split(/\r\n|\r|\n/), 0);
}

// -- the elements of a text: nothing but elements of these names, and text nodes

/** @param {Element} into @param {string} name @param {Record<string, string>} [attributes] @returns {Element} */
function child(into, name, attributes = {}) {
  const made = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  into.append(made);
  return made;
}

/** @param {Element} into @param {string} text @returns {Generator<number>} */
export function* markdown(into, text) {
  for (const one of parse(text)) yield* block(into, one);
}

/** @param {Element} into @param {string} text @returns {Generator<number>} a text as it was written, in pieces */
export function* verbatim(into, text) {
  const lines = text.split("\n");
  for (let at = 0, part = ""; at < lines.length; at += 1) {
    part += (part && "\n") + lines[at];
    if (part.length < PIECE && at < lines.length - 1) continue;
    for (const piece of pieces(part, PIECE)) yield* written(child(into, "div", { class: "piece" }), piece);
    part = "";
  }
}

/** @param {Element} into @param {string} text @returns {Generator<number>} a text node, and what it costs */
function* written(into, text) {
  into.append(visible(text));
  yield text.length + AN_ELEMENT;
}

/** @param {Element} into @param {Block} one @returns {Generator<number>} */
function* block(into, one) {
  switch (one.kind) {
    case "heading": // The letter's own heading is the third level of the page.
      yield* inline(child(into, one.level < 3 ? "h4" : "h5"), one.of);
      break;
    case "paragraph": {
      const whole = child(into, one.of.length > 1 ? "div" : "p", one.of.length > 1 ? { class: "long" } : {});
      if (one.of.length === 1) yield* inline(whole, one.of[0]);
      else for (const piece of one.of) yield* inline(child(whole, "div", { class: "piece" }), piece);
      break;
    }
    case "code": {
      const label = one.word ? `code, ${visible(one.word)}` : "code";
      const box = child(into, "pre", { tabindex: "0", "aria-label": label, role: "group" });
      if (one.word) yield* written(child(box, "span", { class: "word faint" }), one.word);
      yield* verbatim(child(box, "code"), one.text);
      break;
    }
    case "rule":
      child(into, "hr");
      yield AN_ELEMENT;
      break;
    case "quote":
      yield* blocks(child(into, "blockquote"), one.of);
      break;
    case "list": {
      const list = one.ordered ? child(into, "ol", { start: String(one.start) }) : child(into, "ul");
      for (const item of one.items) yield* entry(child(list, "li"), item);
      break;
    }
    case "table": {
      const wide = child(into, "div", { class: "wide", tabindex: "0", role: "group", "aria-label": "table" });
      const table = child(wide, "table");
      const heads = child(child(table, "thead"), "tr");
      for (const cell of one.head) yield* inline(child(heads, "th", { scope: "col" }), cell);
      const rows = child(table, "tbody");
      for (const row of one.rows) {
        const line = child(rows, "tr");
        for (const cell of row) yield* inline(child(line, "td"), cell);
      }
    }
  }
}

/** @param {Element} into @param {Block[]} several @returns {Generator<number>} */
function* blocks(into, several) {
  for (const one of several) yield* block(into, one);
}

/** @param {Element} into @param {Item} one @returns {Generator<number>} */
function* entry(into, one) {
  if (one.done !== null) into.append(one.done ? "☑ " : "☐ ");
  const [first] = one.of;
  const isLine = one.of.length === 1 && first.kind === "paragraph" && first.of.length === 1;
  yield* isLine ? inline(into, first.of[0]) : blocks(into, one.of);
}

/** @param {Element} into @param {Inline[]} several @returns {Generator<number>} */
function* inline(into, several) {
  yield AN_ELEMENT;
  for (const one of several) {
    if (one.kind === "link") {
      if (one.label.length) {
        yield* inline(child(into, "bdi"), one.label);
        into.append(" (");
      }
      into.append(link(one.address));
      if (one.label.length) into.append(")");
      yield one.address.length + 2 * AN_ELEMENT;
    } else if ("of" in one) yield* inline(child(into, one.kind), one.of);
    else if (one.kind === "code") yield* written(child(into, "code"), one.text);
    else {
      const several = pieces(one.text, PIECE);
      for (const piece of several) {
        yield* written(several.length > 1 ? child(into, "span", { class: "piece" }) : into, piece);
      }
    }
  }
}

/**
 * @param {unknown} address
 * @returns {Element} a link that tells its target nothing of this page, or only the address, if it may not be one
 */
export function link(address) {
  const shown = document.createElement("span");
  shown.className = "address";
  shown.textContent = visible(head(String(address ?? ""), PIECE));
  const target = webAddress(address);
  if (target === null) return shown;
  const anchor = document.createElement("a");
  anchor.append(shown);
  const attributes = { class: "out", href: target, target: "_blank", rel: "noopener noreferrer nofollow" };
  for (const [name, value] of Object.entries(attributes)) anchor.setAttribute(name, value);
  return anchor;
}

// -- elements that fill themselves

const AN_ELEMENT = 20; // what an element costs, in characters
const IN_A_FRAME = 6000; // characters that are added in one frame: the browser lays them out in some milliseconds

/** @type {{element: Element, steps: Iterator<number>}[]} */
const filling = []; // the newest last: it is the one that somebody looks at
let left = IN_A_FRAME;
let isWaiting = false; // for the next frame

function fill() {
  while (filling.length && left > 0) {
    const { element, steps } = filling[filling.length - 1];
    const { value, done } = steps.next();
    if (!done) left -= value;
    else {
      filling.pop();
      element.removeAttribute("aria-busy");
      element.dispatchEvent(new Event("filled", { bubbles: true }));
    }
  }
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(() => {
    isWaiting = false;
    left = IN_A_FRAME;
    if (filling.length) fill();
  });
}

/**
 * Fill an element, a piece in each frame: however long a letter is, and whatever is in it, no piece holds the page up.
 * Until it is whole, it is `aria-busy`.
 * @param {string} look its class @param {(into: Element) => Generator<number>} content @returns {Element}
 */
export function filled(look, content) {
  const element = document.createElement("div");
  element.className = look;
  element.setAttribute("aria-busy", "true");
  filling.push({ element, steps: content(element) });
  fill();
  return element;
}
