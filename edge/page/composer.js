// Where a message is written: Enter sends, Shift+Enter makes a line, Esc stops. A draft outlives a reload.

import { byId } from "./dom.js";
import { draftOf, keepDraft } from "./outbox.js";

const ROOM_PX = 80;

export class Composer {
  #field = byId("message");
  #send = byId("send");
  #stop = byId("stop");
  #running = false;
  #conversation = null;

  constructor({ send, stop }) {
    const submit = () => {
      const text = this.#field.value;
      if (this.#running || text.trim() === "") return;
      this.#write("");
      send(text);
    };
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      submit();
    });
    this.#field.addEventListener("input", () => this.#write(this.#field.value));
    this.#field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      submit();
    });
    this.#stop.addEventListener("click", stop);
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.#running && !event.defaultPrevented && !byId("confirm").open) stop();
    });
  }

  /** Goes to the draft of that conversation. */
  open(conversation) {
    this.#conversation = conversation;
    this.#write(draftOf(conversation));
    if (matchMedia("(hover: hover)").matches) this.#field.focus();
  }

  /** The conversation has an id now; its draft goes with it. */
  begun(conversation) {
    keepDraft(this.#conversation, "");
    this.#conversation = conversation;
  }

  running(running) {
    const focused = [this.#send, this.#stop].includes(document.activeElement);
    this.#running = running;
    this.#send.hidden = running;
    this.#stop.hidden = !running;
    if (focused) this.#field.focus();
  }

  /** Gives a text back to be changed, before what has been written since. */
  put(text) {
    const since = this.#field.value;
    this.#write(since ? `${text}\n${since}` : text);
  }

  focus() {
    this.#field.focus();
  }

  #write(text) {
    if (this.#field.value !== text) this.#field.value = text;
    this.#send.disabled = text.trim() === "";
    keepDraft(this.#conversation, text);
    if (!CSS.supports("field-sizing", "content")) this.#field.rows = Math.min(10, text.split("\n").length);
  }
}

/** Keeps the end of the messages in sight while they grow, unless the reader has scrolled up. */
export function followEnd() {
  const scroller = byId("scroller");
  const latest = byId("latest");
  let atEnd = true;
  const toEnd = () => {
    scroller.scrollTop = scroller.scrollHeight;
    atEnd = true;
  };
  scroller.addEventListener("scroll", () => {
    atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < ROOM_PX;
    latest.hidden = atEnd;
  });
  latest.addEventListener("click", toEnd);
  new ResizeObserver(() => (atEnd ? toEnd() : undefined)).observe(byId("column"));
  return toEnd;
}
