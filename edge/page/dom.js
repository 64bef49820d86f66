// What every part of the page needs of the document: elements by id, templates, ids, and words for a screen reader.

const MOST_ANNOUNCED = 6;

export function byId(id) {
  return document.getElementById(id);
}

/** A fresh copy of a template's one element. */
export function fromTemplate(id) {
  return byId(id).content.firstElementChild.cloneNode(true);
}

export function button(words, onClick, kind = "") {
  const made = document.createElement("button");
  made.type = "button";
  made.className = kind;
  made.textContent = words;
  made.addEventListener("click", onClick);
  return made;
}

/** An id that nobody has; `crypto.randomUUID` is missing on pages without TLS. */
export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Says something once to whoever listens instead of looks. */
export function announce(words) {
  const region = byId("announcer");
  if (!words.trim()) return;
  const said = document.createElement("p");
  said.textContent = words;
  region.append(said);
  while (region.childElementCount > MOST_ANNOUNCED) region.firstElementChild.remove();
}

export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "unseen";
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  if (!copied) throw new Error("the browser does not let this page copy");
}
