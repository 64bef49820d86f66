// Markdown that grows in, elements out. Elements are made by name and text by text nodes: no HTML is ever parsed.
// Only the last block is read again when text comes, and only what differs is touched, so nothing flickers and a
// selection stays. Drawing rests nine times as long as it took: a long block never takes more than a tenth of the time.

import { blocks } from "./markdown.js";

const REST = 9;
const FRAME_MS = 16;

/** What is in `parent` made equal to `nodes`, from its child `from` on. */
export function patch(parent, nodes, from = 0) {
  nodes.forEach((node, n) => patchOne(parent, parent.childNodes[from + n], node));
  while (parent.childNodes.length > from + nodes.length) parent.lastChild.remove();
}

function patchOne(parent, child, node) {
  if (typeof node === "string") patchText(parent, child, node);
  else if (child instanceof Element && isLike(child, node)) patch(child, node.nodes);
  else place(parent, child, element(node));
}

function patchText(parent, child, text) {
  if (!(child instanceof Text)) place(parent, child, document.createTextNode(text));
  else if (child.data === text) return;
  else if (text.startsWith(child.data)) child.appendData(text.slice(child.data.length));
  else child.data = text;
}

function place(parent, child, made) {
  if (child) child.replaceWith(made);
  else parent.append(made);
}

function isLike(child, { tag, attrs = {} }) {
  const names = Object.keys(attrs);
  const same = names.every((name) => child.getAttribute(name) === attrs[name]);
  return child.localName === tag && child.attributes.length === names.length && same;
}

function element({ tag, attrs = {}, nodes }) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attrs)) made.setAttribute(name, value);
  patch(made, nodes);
  return made;
}

/** Text that grows in an element; `onBlock` hears the plain text of each block once it will change no more. */
export class MarkdownView {
  text = "";
  #element;
  #onBlock;
  #settled = 0;
  #settledNodes = 0;
  #timer = null;
  #restMs = FRAME_MS;

  constructor(element, onBlock = () => {}) {
    this.#element = element;
    this.#onBlock = onBlock;
  }

  push(text) {
    if (text === "") return;
    this.text += text;
    this.#timer ??= setTimeout(() => requestAnimationFrame(() => this.#timer !== null && this.draw()), this.#restMs);
  }

  /** Shows all of the text now. */
  draw() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const began = performance.now();
    const tail = this.text.slice(this.#settled);
    const found = blocks(tail);
    patch(this.#element, found.map((one) => one.node), this.#settledNodes);
    this.#settle(found, tail);
    this.#restMs = Math.max(FRAME_MS, REST * (performance.now() - began));
  }

  /** Shows all of the text, and no more will come. */
  end() {
    this.draw();
    for (const child of [...this.#element.childNodes].slice(this.#settledNodes)) this.#onBlock(child.textContent);
    this.#settledNodes = this.#element.childNodes.length;
    this.#settled = this.text.length;
  }

  /** A block is settled once the one after it has a whole line: no later text can make one block of both. */
  #settle(found, tail) {
    const last = found.findLastIndex((one) => tail.indexOf("\n", one.start) >= 0);
    for (let n = 0; n < last; n += 1) {
      this.#onBlock(this.#element.childNodes[this.#settledNodes].textContent);
      this.#settledNodes += 1;
    }
    if (last > 0) this.#settled += found[last].start;
  }
}
