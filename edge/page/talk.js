// The open conversation: its saved messages, the reply that is being written, and what is sent next.
// One life per conversation: opening another aborts whatever this one still waits for; the replies go on without it.

import { explain, Refusal, Unreachable } from "./api.js";
import { arrived, backToComposer, cutAfter, inPlace, offerTools, offerToolsOnceSaved } from "./branches.js";
import { announce, byId, newId } from "./dom.js";
import { follow } from "./follow.js";
import { AssistantMessage, userMessage } from "./messages.js";
import { forget, isLost, keep, pendingOf, post } from "./outbox.js";

const PAGE = 50;
/** Refusals that the same words would meet again. */
const HOPELESS = new Set([400, 413, 422]);

export class Talk {
  conversation = null;
  #api;
  #list = byId("messages");
  #life = new AbortController();
  #running = null;
  /** Whether an older branch is shown, so that what is sent has to say what it follows. */
  #aside = false;
  #hears;

  /**
   * `hears` gets `started(conversation, text)`, `running(boolean)`, `ended()`, `titled(text)`, `returned(text)`, and
   * is asked for the `model()` that is chosen.
   */
  constructor(api, hears) {
    this.#api = api;
    this.#hears = hears;
    byId("earlier").addEventListener("click", () => this.#guarded(() => this.#earlier()));
  }

  get isRunning() {
    return this.#running !== null;
  }

  /** Shows a conversation, or with null the place to begin one. */
  async open(conversation) {
    this.close();
    this.conversation = conversation;
    byId("welcome").hidden = conversation !== null;
    if (conversation !== null) await this.#guarded(() => this.#load(this.#life.signal));
  }

  close() {
    this.#life.abort(new DOMException("another conversation was opened", "AbortError"));
    this.#life = new AbortController();
    this.#rest();
    this.#list.replaceChildren();
    this.#aside = false;
    byId("note").textContent = "";
    byId("earlier").hidden = true;
  }

  send(text, model) {
    byId("welcome").hidden = true;
    byId("note").textContent = "";
    if (this.conversation === null) {
      this.conversation = newId();
      this.#hears.started(this.conversation, text);
    }
    const parent = this.#aside ? this.#list.lastElementChild?.dataset.id : undefined;
    this.#list.append(userMessage(text));
    return this.#run({ key: newId(), text, model, parent });
  }

  /** What a message's tools do. */
  #tools = {
    ask: ({ text, parent }) => this.#guarded(() => this.#branch({ key: newId(), text, parent, model: this.#hears.model() })),
    through: (id, direction) => this.#guarded(() => this.#through(id, direction)),
  };

  async #branch(message) {
    if (this.isRunning) return;
    byId("note").textContent = "";
    await this.#goTo(message);
    backToComposer();
    await this.#run(message);
  }

  /** Shows the branch that the message follows, and the message. */
  async #goTo({ text, parent }) {
    const { signal } = this.#life;
    if (parent && !cutAfter(this.#list, parent)) {
      this.#show(await this.#page(signal, { through: parent }));
      cutAfter(this.#list, parent);
    }
    if (text !== undefined) this.#list.append(userMessage(text));
  }

  async #through(id, direction) {
    if (this.isRunning) return;
    const page = await this.#page(this.#life.signal, { through: id });
    inPlace(this.#list, page.messages.find((one) => one.id === id) ?? { id, siblings: [] }, () => this.#show(page));
    this.#aside = true;
    arrived(this.#list, id, direction);
  }

  #show(page) {
    this.#list.replaceChildren(...page.messages.map((one) => this.#saved(one)));
    this.#offerEarlier(page.next);
  }

  #saved(message) {
    const element = savedMessage(message);
    offerTools(element, message, this.#tools);
    return element;
  }

  /** Asks for the end of the reply that is being written. */
  async stop() {
    const running = this.#running;
    if (!running || running.shown.state === "stopping") return;
    running.shown.become("stopping");
    running.stopped = true;
    if (running.message.reply) await this.#guarded(() => this.#stopReply(running.message.reply));
  }

  async #stopReply(reply) {
    await this.#api.ask("POST", `/v1/replies/${reply}/stop`);
  }

  async #load(signal) {
    const page = await this.#page(signal);
    const pending = pendingOf(this.conversation);
    signal.throwIfAborted();
    const answered = new Set(page.messages.filter((one) => one.role === "assistant").map((one) => one.reply));
    this.#show(page);
    const last = page.messages.at(-1);
    this.#hears.titled(page.messages[0]?.text ?? pending?.text ?? "");
    const open = last?.role === "user" && last.reply && !answered.has(last.reply) ? last : null;
    if (pending && answered.has(pending.reply)) forget(this.conversation);
    else if (pending) {
      if (pending.text === undefined || open?.text !== pending.text) await this.#goTo(pending);
      await this.#run(pending);
    } else if (open) await this.#run({ key: newId(), text: open.text, reply: open.reply });
    else if (page.messages.length === 0) byId("note").textContent = "There is no such conversation. Write to begin it.";
  }

  /** `from`: nothing, or `{ before }` or `{ through }` a message. */
  async #page(signal, from = {}) {
    const asked = new URLSearchParams({ limit: PAGE, ...from });
    const path = `/v1/conversations/${encodeURIComponent(this.conversation)}?${asked}`;
    try {
      return await this.#api.ask("GET", path, { signal });
    } catch (error) {
      if (error instanceof Refusal && error.status === 404) return { messages: [], next: null };
      throw error;
    }
  }

  #offerEarlier(next) {
    byId("earlier").hidden = !next;
    byId("earlier").value = next ?? "";
  }

  async #earlier() {
    const scroller = byId("scroller");
    const page = await this.#page(this.#life.signal, { before: byId("earlier").value });
    const fromEnd = scroller.scrollHeight - scroller.scrollTop;
    this.#list.prepend(...page.messages.map((one) => this.#saved(one)));
    this.#offerEarlier(page.next);
    scroller.scrollTop = scroller.scrollHeight - fromEnd;
  }

  /** Posts a message unless its reply is known, and follows the reply to its end. */
  async #run(message) {
    const { signal } = this.#life;
    const shown = new AssistantMessage();
    const running = { message, shown, stopped: false };
    this.#aside = false;
    this.#running = running;
    this.#hears.running(true);
    this.#list.classList.add("running");
    this.#list.append(shown.element);
    shown.become("sending");
    try {
      await this.#posted(running, signal);
      await this.#followed(message.reply, shown, signal);
      if (shown.state === "shed" || shown.state === "failed") this.#offerAgain(shown, anew(message, shown), shown.retryAfterS);
      this.#guarded(() => offerToolsOnceSaved(this.#list, message.reply, () => this.#page(signal), this.#tools, signal));
    } catch (error) {
      if (!signal.aborted) this.#refused(error, shown, message);
    }
    if (signal.aborted) return;
    this.#rest();
    this.#hears.ended();
  }

  async #posted(running, signal) {
    const { message, shown } = running;
    if (!message.reply) {
      keep(this.conversation, message);
      const onBroken = () => shown.become(navigator.onLine ? "reconnecting" : "offline");
      message.reply = await post(this.#api, this.conversation, message, { onBroken, signal });
      keep(this.conversation, message);
    }
    if (running.stopped) await this.#stopReply(message.reply);
  }

  async #followed(reply, shown, signal) {
    const onBroken = () => shown.become(navigator.onLine ? "reconnecting" : "offline");
    const onOpen = () => shown.connected();
    const onEvent = (type, data) => {
      if (type === "accepted") named(shown, data);
      shown.take(type, data);
    };
    try {
      const end = await follow(this.#api, reply, { onEvent, onOpen, onBroken, signal });
      shown.end(end?.type ?? "finished", end?.data);
      shown.retryAfterS = end?.data.retry_after ?? 0;
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 410) throw error;
      const saved = await this.#api.ask("GET", `/v1/replies/${reply}`, { signal });
      shown.saved(saved.text.slice(shown.text.length), saved.state);
    }
  }

  #refused(error, shown, message) {
    if (!(error instanceof Refusal || error instanceof Unreachable)) throw error;
    const lost = isLost(error);
    shown.refused(explain(error));
    if (error.code === "conversation_busy") shown.also("Show that reply", () => this.#instead(message.text));
    if (!lost) forget(this.conversation);
    if (HOPELESS.has(error.status) && message.text) this.#hears.returned(message.text);
    else this.#offerAgain(shown, lost ? message : fresh(message), error.retryAfterS ?? 0);
  }

  /** Goes to the conversation as it is now; what was not sent goes back to where it was written. */
  #instead(text) {
    if (text) this.#hears.returned(text);
    return this.open(this.conversation);
  }

  #offerAgain(shown, again, waitS) {
    const retry = () => {
      if (this.isRunning) return;
      shown.remove();
      announce("Sending again");
      this.#run(again);
    };
    shown.offer(retry, waitS);
  }

  #rest() {
    this.#running = null;
    this.#list.classList.remove("running");
    this.#hears.running(false);
  }

  async #guarded(work) {
    const { signal } = this.#life;
    try {
      await work();
    } catch (error) {
      if (!signal.aborted) byId("note").textContent = explain(error);
    }
  }
}

/** The same words as a message of their own. */
function fresh({ text, model, parent }) {
  return { key: newId(), text, model, parent };
}

/** Another answer to a question that is saved; else the same words again. */
function anew(message, { question }) {
  return question ? { key: newId(), model: message.model, parent: question } : fresh(message);
}

/** The messages of a reply have ids, by which they are found again. */
function named(shown, { user_message: question, assistant_message: answer }) {
  shown.question = question;
  shown.element.dataset.id = answer;
  const before = shown.element.previousElementSibling;
  if (question && before?.classList.contains("user")) before.dataset.id = question;
}

function savedMessage({ role, text, status }) {
  if (role === "user") return userMessage(text);
  const shown = new AssistantMessage({ quiet: true });
  shown.saved(text, status);
  return shown.element;
}
