// An event stream's bytes in, events out, as HTML's "Server-sent events" section parses them.
// Chunks may break anywhere: within a character, between CR and LF, within a field. Knows nothing of pages.

/** Text in, events out. `lastId` outlives an event, as the standard has it; `retryMs` is null until the server says. */
export class EventParser {
  lastId = "";
  retryMs = null;
  #line = [];
  #afterCr = false;
  #data = [];
  #type = "";
  #id = "";

  /** The events that `text` completes: `{type, data, id}`. */
  push(text) {
    const events = [];
    let at = this.#afterCr && text.startsWith("\n") ? 1 : 0;
    if (text !== "") this.#afterCr = text.endsWith("\r");
    const ends = /\r\n|\r|\n/g;
    ends.lastIndex = at;
    for (let end; (end = ends.exec(text)); at = ends.lastIndex) {
      this.#line.push(text.slice(at, end.index));
      const event = this.#take(this.#line.join(""));
      this.#line = [];
      if (event) events.push(event);
    }
    if (at < text.length) this.#line.push(text.slice(at));
    return events;
  }

  #take(line) {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return null;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#type = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    else if (field === "retry" && /^[0-9]+$/.test(value)) this.retryMs = Number(value);
    return null;
  }

  #dispatch() {
    this.lastId = this.#id;
    const event = { type: this.#type || "message", data: this.#data.join("\n"), id: this.lastId };
    const empty = this.#data.length === 0 || (this.#data.length === 1 && this.#data[0] === "");
    this.#data = [];
    this.#type = "";
    return empty ? null : event;
  }
}

/** A connection that ended in the middle. */
export class Broken extends Error {}

/** Events of a response's body until it ends; `onBytes` hears of every chunk. Throws Broken when the connection breaks. */
export async function* eventsOf(body, parser, onBytes = () => {}) {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        throw new Broken(error.message);
      });
      if (done) return;
      onBytes();
      yield* parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
