// A message on the page: what the user wrote as plain text, or a reply that grows, with its state in words below it.

import { announce, button, fromTemplate } from "./dom.js";
import { MarkdownView } from "./markdown_view.js";

/** States of a reply that goes on: what is said of them, and whether something moves. */
const STATES = {
  sending: "Sending",
  queued: "Waiting for its turn",
  writing: "",
  preempted: "Paused while others are served; it goes on by itself",
  resuming: "The server that wrote this was lost; another goes on from here",
  reconnecting: "Connection lost; going on from here at the next server that answers",
  offline: "You are offline; this goes on from here when the network is back",
  stopping: "Stopping",
};
const ABANDONED = "Stopped, since nobody was listening";
const FAILED = { deadline: "It took too long and was given up", no_replica: "No server could take it in time" };

export function userMessage(text) {
  const element = fromTemplate("t-user");
  element.querySelector(".text").textContent = text;
  return element;
}

/** What is said at a reply's end, by its event. */
function endWords(type, data) {
  if (type === "finished") return data.finish_reason === "length" ? "Cut at the longest length a reply may have" : "";
  if (type === "stopped") return data.reason === "abandoned" ? ABANDONED : "Stopped";
  if (type === "flagged") return "Ended by the safety check";
  if (type === "shed") return "Too many requests at the moment, so this one was not answered";
  return FAILED[data.reason] ?? "The reply could not be finished";
}

export class AssistantMessage {
  state = "";
  element = fromTemplate("t-assistant");
  #text = this.element.querySelector(".text");
  #words = this.element.querySelector(".words");
  #dots = this.element.querySelector(".dots");
  #buttons = this.element.querySelector(".buttons");
  #view;
  #countdown = null;

  /** `quiet`: it has been read before, so it is not read out. */
  constructor({ quiet = false } = {}) {
    this.#view = new MarkdownView(this.#text, quiet ? () => {} : announce);
  }

  get text() {
    return this.#view.text;
  }

  /** An event of its reply; the end goes to `end`. */
  take(type, data) {
    if (type === "accepted" && data.asked_model) this.#answeredBy(data);
    if (type === "token") {
      this.#view.push(data.text);
      if (this.state !== "stopping") this.become("writing");
    } else if (type in STATES) this.become(type);
  }

  #answeredBy({ model, asked_model: asked }) {
    const aside = this.element.querySelector(".aside");
    aside.textContent = `The limit of ${asked} is reached, so ${model} answers`;
    aside.hidden = false;
    announce(aside.textContent);
  }

  become(state) {
    if (state === this.state) return;
    this.#show(state, STATES[state], true);
    if (state !== "sending" && STATES[state]) announce(STATES[state]);
  }

  /** The connection is back, whether or not there is something new. */
  connected() {
    if (this.state === "reconnecting" || this.state === "offline") this.become(this.text ? "writing" : "queued");
  }

  end(type, data = {}) {
    this.#view.end();
    this.#show(type, endWords(type, data), false);
    announce(this.#words.textContent || "The reply is complete");
  }

  /** A reply as it was saved. */
  saved(text, status, reason) {
    this.#view.push(text);
    this.#view.end();
    const type = status === "complete" ? "finished" : status;
    this.#show(type, endWords(type, { reason }), false);
  }

  refused(words) {
    this.#view.end();
    this.#show("refused", words, false);
    announce(words);
  }

  /** Offers `retry`, after `waitS` seconds if given. */
  offer(retry, waitS = 0) {
    const until = performance.now() + 1000 * waitS;
    const offered = button("Try again", retry);
    const tick = () => {
      const left = Math.ceil((until - performance.now()) / 1000);
      offered.disabled = left > 0;
      offered.textContent = left > 0 ? `Try again in ${left} s` : "Try again";
      if (left > 0) this.#countdown = setTimeout(tick, 250);
    };
    this.#buttons.append(offered);
    tick();
  }

  also(words, onClick) {
    this.#buttons.append(button(words, onClick));
  }

  remove() {
    clearTimeout(this.#countdown);
    this.element.remove();
  }

  #show(state, words, moves) {
    clearTimeout(this.#countdown);
    this.state = this.element.dataset.state = state;
    this.#words.textContent = words;
    this.#dots.classList.toggle("on", moves);
    this.#text.setAttribute("aria-busy", String(moves));
    this.#buttons.replaceChildren();
  }
}
