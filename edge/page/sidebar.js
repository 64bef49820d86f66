// The user's conversations: a page at a time, the newest first, each to open, rename or delete.
// The list is read from a store that lags a moment behind, so what was just begun, renamed or deleted here counts first.

import { explain } from "./api.js";
import { announce, byId, fromTemplate } from "./dom.js";

const PAGE = 30;

export class Sidebar {
  #api;
  #hears;
  #found = [];
  #next = null;
  #begun = new Map();
  #renamed = new Map();
  #deleted = new Set();
  #current = null;

  /** `hears` gets `deleted(conversation)` and `titled(conversation, title)`. */
  constructor(api, hears) {
    this.#api = api;
    this.#hears = hears;
    byId("more").addEventListener("click", () => this.#read(this.#next));
  }

  refresh() {
    return this.#read(null);
  }

  begun(conversation, text) {
    this.#begun.set(conversation, { id: conversation, title: text });
    this.#draw();
  }

  open(conversation) {
    this.#current = conversation;
    this.#draw();
  }

  titleOf(conversation) {
    return this.#renamed.get(conversation) ?? this.#lines().find((one) => one.id === conversation)?.title ?? null;
  }

  async #read(before) {
    const path = `/v1/conversations?limit=${PAGE}${before ? `&before=${encodeURIComponent(before)}` : ""}`;
    try {
      const page = await this.#api.ask("GET", path);
      const fresh = new Set(page.conversations.map((one) => one.id));
      const earlier = this.#found.filter((one) => !fresh.has(one.id));
      this.#found = before ? [...earlier, ...page.conversations] : [...page.conversations, ...earlier];
      if (before || earlier.length === 0) this.#next = page.next;
      fresh.forEach((id) => this.#begun.delete(id));
      byId("list-note").textContent = this.#lines().length ? "" : "Your conversations will be listed here.";
      this.#draw();
    } catch (error) {
      byId("list-note").textContent = explain(error);
    }
  }

  #lines() {
    const all = [...[...this.#begun.values()].reverse(), ...this.#found];
    return all.filter((one) => !this.#deleted.has(one.id));
  }

  #draw() {
    const list = byId("conversations");
    if (list.querySelector(".renaming")) return;
    const focused = list.contains(document.activeElement) ? document.activeElement : null;
    const place = focused && { id: focused.closest("li").dataset.id, kind: focused.classList[focused.classList.length - 1] };
    list.replaceChildren(...this.#lines().map((one) => this.#row(one)));
    byId("more").hidden = !this.#next;
    if (place) list.querySelector(`li[data-id="${CSS.escape(place.id)}"] .${place.kind}`)?.focus();
  }

  #row({ id, title }) {
    const row = fromTemplate("t-conversation");
    const shown = this.#renamed.get(id) ?? title;
    const open = row.querySelector(".open");
    row.dataset.id = id;
    open.href = `#c/${encodeURIComponent(id)}`;
    open.textContent = open.title = shown;
    if (id === this.#current) {
      row.classList.add("current");
      open.setAttribute("aria-current", "page");
    }
    const tools = { rename: "Rename", delete: "Delete" };
    for (const [kind, words] of Object.entries(tools)) row.querySelector(`.${kind}`).setAttribute("aria-label", `${words} ${shown}`);
    row.querySelector(".rename").addEventListener("click", () => this.#rename(row, id, shown));
    row.querySelector(".delete").addEventListener("click", () => this.#delete(id, shown));
    return row;
  }

  #rename(row, id, title) {
    const form = fromTemplate("t-rename");
    const field = form.querySelector("input");
    const over = () => {
      form.remove();
      this.#draw();
      byId("conversations").querySelector(`li[data-id="${CSS.escape(id)}"] .rename`)?.focus();
    };
    field.value = title;
    row.replaceChildren(form);
    field.select();
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      over();
    });
    form.addEventListener("focusout", (event) => {
      if (!form.contains(event.relatedTarget) && field.value.trim() === title) over();
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const words = field.value.trim();
      try {
        if (words && words !== title) await this.#renamedTo(id, words);
        over();
      } catch (error) {
        form.querySelector(".error").textContent = explain(error);
      }
    });
  }

  async #renamedTo(id, title) {
    await this.#api.ask("PATCH", `/v1/conversations/${encodeURIComponent(id)}`, { body: { title } });
    this.#renamed.set(id, title);
    this.#hears.titled(id, title);
    announce(`Renamed to ${title}`);
  }

  #delete(id, title) {
    const dialog = byId("confirm");
    byId("confirm-name").textContent = `“${title}”`;
    byId("confirm-error").textContent = "";
    byId("confirm-delete").onclick = async () => {
      try {
        await this.#api.ask("DELETE", `/v1/conversations/${encodeURIComponent(id)}`);
      } catch (error) {
        byId("confirm-error").textContent = explain(error);
        return;
      }
      this.#deleted.add(id);
      dialog.close();
      this.#draw();
      this.#hears.deleted(id);
      announce("Deleted");
    };
    dialog.showModal();
  }
}

/** On a narrow page the list is a drawer: opened by its button, closed by Esc, a choice, or a touch beside it. */
export function drawer() {
  const app = byId("app");
  const narrow = matchMedia("(max-width: 759.98px)");
  const set = (open) => {
    const wasOpen = app.classList.contains("drawer");
    app.classList.toggle("drawer", open);
    byId("shade").hidden = !open;
    byId("talk").inert = open;
    byId("menu").setAttribute("aria-expanded", String(open));
    if (open) byId("close-menu").focus();
    else if (wasOpen) byId("menu").focus();
  };
  byId("menu").addEventListener("click", () => set(true));
  for (const id of ["close-menu", "shade"]) byId(id).addEventListener("click", () => set(false));
  document.addEventListener("keydown", (event) => {
    if (byId("confirm").open || event.key !== "Escape" || event.defaultPrevented || !app.classList.contains("drawer")) return;
    event.preventDefault();
    set(false);
  });
  narrow.addEventListener("change", () => set(false));
  return () => set(false);
}
