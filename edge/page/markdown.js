// Markdown in, a tree of plain values out: `{tag, attrs, nodes}`, each block with the place where it starts.
// A chat model's dialect: no HTML (it is text), no indented code, no reference links. Makes no element.

import { inline } from "./inline.js";

const DEEPEST = 12;
const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]|$)/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:( +)|$)/;
const DELIMITER = /^:?-+:?$/;

/** Top-level blocks of a text, in order: `{node, start}`. */
export function blocks(text) {
  const lines = [];
  let at = 0;
  for (const line of text.split("\n")) {
    lines.push({ text: line.replaceAll("\t", "    ").replace(/\r$/, ""), start: at });
    at += line.length + 1;
  }
  return parse(lines, 0);
}

function parse(lines, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const [node, next] = block(lines, at, depth);
    found.push({ node, start: lines[at].start });
    at = next;
  }
  return found;
}

function block(lines, at, depth) {
  const { text } = lines[at];
  if (FENCE.test(text)) return fence(lines, at);
  if (HEADING.test(text)) return [heading(text), at + 1];
  if (RULE.test(text)) return [{ tag: "hr", nodes: [] }, at + 1];
  if (depth < DEEPEST && QUOTE.test(text)) return quote(lines, at, depth);
  if (depth < DEEPEST && ITEM.test(text)) return list(lines, at, depth);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at, depth);
}

function isBlank(line) {
  return line.text.trim() === "";
}

/** Whether a line begins something that ends a paragraph. */
function interrupts(lines, at) {
  const { text } = lines[at];
  const item = ITEM.exec(text);
  const counts = item && item[3] && (/^[-*+]$/.test(item[2]) || /^1[.)]$/.test(item[2]));
  return FENCE.test(text) || HEADING.test(text) || RULE.test(text) || QUOTE.test(text) || counts || isTable(lines, at);
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && (depth >= DEEPEST || !interrupts(lines, end))) end += 1;
  const text = lines.slice(at, end).map((line) => line.text.trim());
  return [{ tag: "p", nodes: inline(text.join("\n")) }, end];
}

function heading(text) {
  const [, marks] = HEADING.exec(text);
  const words = text.trim().slice(marks.length).trim();
  const closed = words.replace(/#+$/, "");
  const inner = closed === "" || closed.endsWith(" ") ? closed.trim() : words;
  return { tag: `h${Math.min(6, marks.length + 1)}`, nodes: inline(inner) };
}

function fence(lines, at) {
  const [, indent, marks, words] = FENCE.exec(lines[at].text);
  const closes = new RegExp(`^ {0,3}\\${marks[0]}{${marks.length},}[ ]*$`);
  let end = at + 1;
  while (end < lines.length && !closes.test(lines[end].text)) end += 1;
  const code = lines.slice(at + 1, end).map((line) => unindented(line.text, indent.length));
  return [codeBlock(code.join("\n"), words.trim().split(/\s+/)[0]), Math.min(end + 1, lines.length)];
}

function codeBlock(text, language) {
  const bar = {
    tag: "div",
    attrs: { class: "code-bar" },
    nodes: [
      { tag: "span", nodes: [language || "text"] },
      { tag: "button", attrs: { class: "copy", type: "button", "aria-label": "Copy this code" }, nodes: ["Copy"] },
    ],
  };
  const code = { tag: "pre", attrs: { tabindex: "0" }, nodes: [{ tag: "code", nodes: [text] }] };
  return { tag: "div", attrs: { class: "code" }, nodes: [bar, code] };
}

function unindented(text, most) {
  let count = 0;
  while (count < most && text[count] === " ") count += 1;
  return text.slice(count);
}

function nodesOf(lines, depth) {
  return parse(lines, depth).map((one) => one.node);
}

function quote(lines, at, depth) {
  const inner = [];
  let end = at;
  for (; end < lines.length && !isBlank(lines[end]); end += 1) {
    const marked = QUOTE.test(lines[end].text);
    if (!marked && interrupts(lines, end)) break;
    inner.push({ ...lines[end], text: lines[end].text.replace(QUOTE, "") });
  }
  return [{ tag: "blockquote", nodes: nodesOf(inner, depth + 1) }, end];
}

function kind(marker) {
  return /\d/.test(marker) ? marker.at(-1) : marker;
}

function list(lines, at, depth) {
  const [, , marker] = ITEM.exec(lines[at].text);
  const items = [];
  let end = at;
  let loose = false;
  while (end < lines.length) {
    const found = ITEM.exec(lines[end].text);
    if (!found || kind(found[2]) !== kind(marker) || RULE.test(lines[end].text)) break;
    const [inner, next] = item(lines, end, found);
    const spaced = next > end + 1 && isBlank(lines[next - 1]);
    items.push(inner);
    end = next;
    loose ||= spaced && end < lines.length && ITEM.test(lines[end].text);
  }
  const ordered = /\d/.test(marker);
  const first = parseInt(marker, 10);
  const nodes = items.map((inner) => ({ tag: "li", nodes: tight(nodesOf(inner, depth + 1), loose) }));
  const attrs = ordered && first !== 1 ? { start: String(first) } : {};
  return [{ tag: ordered ? "ol" : "ul", attrs, nodes }, end];
}

/** An item's own lines, without its marker, and the line after them. A nested list may be indented by two spaces. */
function item(lines, at, [marked, indent, marker, gap]) {
  const width = indent.length + marker.length + (gap && gap.length <= 4 ? gap.length : 1);
  const inner = [{ ...lines[at], text: lines[at].text.slice(Math.min(marked.length, width)) }];
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const { text } = lines[end];
    const spaces = text.length - text.trimStart().length;
    const nested = spaces >= indent.length + 2 && (spaces >= width || ITEM.test(text));
    const lazy = !isBlank(lines[end - 1]) && spaces < width && !interrupts(lines, end) && !ITEM.test(text);
    if (!isBlank(lines[end]) && !nested && !lazy) break;
    inner.push({ ...lines[end], text: unindented(text, nested ? Math.min(width, spaces) : spaces) });
  }
  return [inner, end];
}

/** A tight list shows its items' texts without the space between paragraphs. */
function tight(nodes, loose) {
  return loose ? nodes : nodes.flatMap((node) => (node.tag === "p" ? node.nodes : [node]));
}

function cells(text) {
  const inner = text.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function isTable(lines, at) {
  if (at + 1 >= lines.length || !lines[at].text.includes("|") || !/[|-]/.test(lines[at + 1].text)) return false;
  const marks = cells(lines[at + 1].text);
  return marks.every((mark) => DELIMITER.test(mark)) && marks.length === cells(lines[at].text).length;
}

function table(lines, at) {
  const sides = cells(lines[at + 1].text).map((mark) => {
    if (mark.endsWith(":")) return mark.startsWith(":") ? { class: "center" } : { class: "right" };
    return {};
  });
  const row = (text, tag) => {
    const found = cells(text);
    return { tag: "tr", nodes: sides.map((attrs, n) => ({ tag, attrs, nodes: inline(found[n] ?? "") })) };
  };
  let end = at + 2;
  while (end < lines.length && !isBlank(lines[end]) && lines[end].text.includes("|")) end += 1;
  const head = { tag: "thead", nodes: [row(lines[at].text, "th")] };
  const body = { tag: "tbody", nodes: lines.slice(at + 2, end).map((line) => row(line.text, "td")) };
  const nodes = [{ tag: "table", nodes: [head, body] }];
  return [{ tag: "div", attrs: { class: "table", tabindex: "0" }, nodes }, end];
}
