// Markdown within a line in, a tree of plain values out: strings, and `{tag, attrs, nodes}`. Makes no element.
// Every construct is found in one pass, so that no text costs more than its length; what does not close is text.

const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const LONGEST_URL = 2000;
const SPECIAL = /[\\`*_~[\]!<\n]|https?:\/\//g;
const PUNCTUATION = /^[!-/:-@[-`{-~]/;
const MARKS = { "*": ["em", "strong"], _: ["em", "strong"], "~": [null, "del"] };

/** Where a link may lead: an absolute http, https or mailto address; null for anything else. */
export function safeUrl(text) {
  try {
    const url = new URL(text);
    return SCHEMES.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

export function link(href, nodes) {
  return { tag: "a", attrs: { href, rel: "noopener noreferrer", target: "_blank" }, nodes };
}

export function inline(text) {
  return new Inline(text).nodes();
}

class Inline {
  #text;
  #at = 0;
  #parts = [];
  #brackets = [];
  #unclosedTicks = new Set();

  constructor(text) {
    this.#text = text;
  }

  nodes() {
    while (this.#at < this.#text.length) this.#step();
    return plain(emphasized(this.#parts));
  }

  #step() {
    SPECIAL.lastIndex = this.#at;
    const found = SPECIAL.exec(this.#text);
    const start = found ? found.index : this.#text.length;
    if (start > this.#at) this.#parts.push(this.#text.slice(this.#at, start));
    this.#at = start;
    if (!found) return;
    const [mark] = found;
    if (mark.length > 1) this.#bareUrl();
    else if (mark === "\\") this.#escape();
    else if (mark === "`") this.#code();
    else if (mark in MARKS) this.#run(mark);
    else if (mark === "[" || mark === "!") this.#open(mark);
    else if (mark === "]") this.#close();
    else if (mark === "<") this.#angle();
    else this.#lineEnd();
  }

  #take(count) {
    this.#at += count;
    return this.#text.slice(this.#at - count, this.#at);
  }

  #escape() {
    const next = this.#text[this.#at + 1] ?? "";
    if (next === "\n") this.#at += 1;
    else if (PUNCTUATION.test(next)) this.#parts.push(this.#take(2)[1]);
    else this.#parts.push(this.#take(1));
  }

  #lineEnd() {
    this.#take(1);
    while (this.#text[this.#at] === " ") this.#at += 1;
    this.#parts.push({ tag: "br", nodes: [] });
  }

  #code() {
    let end = this.#at;
    while (this.#text[end] === "`") end += 1;
    const ticks = this.#text.slice(this.#at, end);
    const close = this.#unclosedTicks.has(ticks.length) ? -1 : closing(this.#text, ticks, end);
    if (close < 0) {
      this.#unclosedTicks.add(ticks.length);
      this.#parts.push(this.#take(ticks.length));
      return;
    }
    const inner = this.#text.slice(end, close).replaceAll("\n", " ");
    const padded = inner.length > 2 && inner.startsWith(" ") && inner.endsWith(" ") && inner.trim() !== "";
    this.#parts.push({ tag: "code", nodes: [padded ? inner.slice(1, -1) : inner] });
    this.#at = close + ticks.length;
  }

  #run(mark) {
    let end = this.#at;
    while (this.#text[end] === mark) end += 1;
    const before = this.#text[this.#at - 1] ?? " ";
    const after = this.#text[end] ?? " ";
    const left = flanks(after, before);
    const right = flanks(before, after);
    const within = mark === "_";
    this.#parts.push({
      mark,
      count: end - this.#at,
      opens: left && (!within || !right || PUNCTUATION.test(before)),
      closes: right && (!within || !left || PUNCTUATION.test(after)),
    });
    this.#at = end;
  }

  #open(mark) {
    const image = mark === "!" && this.#text[this.#at + 1] === "[";
    if (mark === "[" || image) this.#brackets.push(this.#parts.length);
    this.#parts.push(this.#take(image ? 2 : 1));
  }

  #close() {
    const opener = this.#brackets.pop();
    this.#take(1);
    const found = opener === undefined ? null : destination(this.#text, this.#at);
    const href = found && safeUrl(found.url);
    if (!href) {
      this.#parts.push("]");
      return;
    }
    const inner = plain(emphasized(this.#parts.splice(opener).slice(1)));
    this.#parts.push(link(href, inner.length ? inner : [found.url]));
    this.#at = found.end;
    this.#brackets = [];
  }

  #angle() {
    const end = this.#text.slice(this.#at, this.#at + LONGEST_URL).indexOf(">");
    const inner = end < 0 ? "" : this.#text.slice(this.#at + 1, this.#at + end);
    const href = /^(https?:\/\/|mailto:)[^\s<>]+$/i.test(inner) ? safeUrl(inner) : null;
    if (!href) {
      this.#parts.push(this.#take(1));
      return;
    }
    this.#parts.push(link(href, [inner]));
    this.#at += end + 1;
  }

  #bareUrl() {
    const rest = this.#text.slice(this.#at, this.#at + LONGEST_URL);
    let url = /^https?:\/\/[^\s<>`*\]]*/.exec(rest)[0].replace(/["'.,:;!?]+$/, "");
    while (url.endsWith(")") && url.split(")").length > url.split("(").length) url = url.slice(0, -1);
    const href = this.#brackets.length ? null : safeUrl(url);
    const shown = this.#take(Math.max(url.length, 4));
    this.#parts.push(href ? link(href, [shown]) : shown);
  }
}

function closing(text, ticks, from) {
  for (let at = text.indexOf(ticks, from); at >= 0; ) {
    let end = at;
    while (text[end] === "`") end += 1;
    if (end - at === ticks.length) return at;
    at = text.indexOf(ticks, end);
  }
  return -1;
}

function flanks(inside, outside) {
  if (/\s/.test(inside)) return false;
  return !PUNCTUATION.test(inside) || /\s/.test(outside) || PUNCTUATION.test(outside);
}

/** `(url "title")` at `at`; null when there is none. */
function destination(text, at) {
  const found = /^\(\s*(?:<([^<>\n]*)>|((?:[^\s()]|\([^\s()]*\))*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(
    text.slice(at, at + LONGEST_URL),
  );
  return found && { url: found[1] ?? found[2], end: at + found[0].length };
}

/** Delimiter runs joined to emphasis, by a stack; a mark that has found no opener is not looked for below again. */
function emphasized(parts) {
  const out = [];
  const openers = [];
  for (const part of parts) {
    out.push(part);
    if (part.mark === undefined) continue;
    while (part.closes && part.count > 0 && pair(part, out, openers));
    if (part.opens && part.count > 0) openers.push({ part, at: out.length - 1 });
  }
  return out;
}

function pair(closer, out, openers) {
  let index = openers.length - 1;
  while (index >= 0 && openers[index].part.mark !== closer.mark) index -= 1;
  if (index < 0) return false;
  const { part, at } = openers[index];
  const size = Math.min(2, part.count, closer.count);
  const tag = MARKS[closer.mark][size - 1];
  openers.length = index + 1;
  if (tag === null) {
    openers.pop();
    return false;
  }
  const inner = plain(out.splice(at + 1, out.length - at - 2));
  out.splice(at + 1, 0, { tag, nodes: inner });
  part.count -= size;
  closer.count -= size;
  if (part.count === 0) openers.pop();
  return true;
}

/** Runs that joined nothing as the text they are, and neighbouring texts as one. */
function plain(parts) {
  const nodes = [];
  for (const part of parts) {
    const node = part.mark === undefined ? part : part.mark.repeat(part.count);
    if (node === "") continue;
    if (typeof node === "string" && typeof nodes.at(-1) === "string") nodes[nodes.length - 1] += node;
    else nodes.push(node);
  }
  return nodes;
}
