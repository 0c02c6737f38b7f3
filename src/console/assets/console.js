// What makes the console quicker: keys, live updates that keep their hands off the selection, the viewer's own time zone.
// Every page is complete without it.

const all = (selector, from = document) => [...from.querySelectorAll(selector)];

// --- Times, in the viewer's zone, with a distance that goes on.

const inZone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

function relative(at, now) {
  const seconds = Math.round(Math.abs(at - now) / 1000);
  const [unit, size] = UNITS.find(([, length]) => seconds >= length) ?? UNITS[3];
  if (seconds === 0) return "now";
  return at < now ? `${Math.floor(seconds / size)} ${unit} ago` : `in ${Math.round(seconds / size)} ${unit}`;
}

function showTimes() {
  for (const time of all("time[datetime]")) {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at)) continue;
    time.querySelector(".absolute").textContent = inZone.format(at);
    time.querySelector(".relative").textContent = `(${relative(at, Date.now())})`;
    time.title = `${time.dateTime} (UTC)`;
  }
}

// --- What needs a script is shown where there is one.

function dress() {
  for (const element of all(".needs-script")) element.hidden = false;
  showTimes();
  countSelected();
}

const items = () => all(".queue .item");
const focused = () => document.activeElement?.closest?.(".queue .item") ?? null;
const boxOf = (item) => item.querySelector('input[name="ids"]');

function countSelected() {
  const place = document.getElementById("selected");
  if (!place) return;
  const whole = document.querySelector('.queue input[name="all"]:checked');
  const count = whole ? Math.min(Number(whole.value), 1000) : all('.queue input[name="ids"]:checked').length;
  place.textContent = `${count} selected`;
}

// --- Live updates: what is selected, focused and open stays so.

const scrolled = {};

function remember(target) {
  const active = document.activeElement;
  const item = active?.closest?.(".item");
  return {
    checked: new Set(all("input:checked", target).map((box) => `${box.name} ${box.value}`)),
    open: new Set(all("details[open][data-keep]", target).map((one) => one.dataset.keep)),
    help: target.querySelector("#keys")?.hidden === false,
    item: item?.id,
    place: item ? items().indexOf(item) : -1,
    inside: item && active !== item ? pathOf(active, item) : null,
  };
}

const pathOf = (element, root) => all("a, button, input, summary", root).indexOf(element);

function restore(target, kept) {
  for (const box of all('input[type="checkbox"]', target)) {
    if (kept.checked.has(`${box.name} ${box.value}`)) box.checked = true;
  }
  for (const one of all("details[data-keep]", target)) if (kept.open.has(one.dataset.keep)) one.open = true;
  if (kept.help) showHelp(true);
  if (!kept.item) return;
  const same = document.getElementById(kept.item);
  const inside = same && kept.inside !== null ? all("a, button, input, summary", same)[kept.inside] : null;
  const next = items()[Math.min(kept.place, items().length - 1)];
  (inside ?? same ?? next)?.focus({ preventScroll: true });
}

// A form that somebody fills in is not swapped away.
const isBusy = (target) =>
  all('input:not([type="checkbox"]):not([type="hidden"])', target).some(
    (input) => input.value !== input.defaultValue || input === document.activeElement,
  );

document.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden || isBusy(event.detail.elt)) event.preventDefault();
});
document.addEventListener("htmx:beforeSwap", (event) => {
  const { target, xhr } = event.detail;
  // An answer that is not the page (an error, another page) leaves what is there, and says so.
  if (!event.detail.shouldSwap || xhr.status !== 200 || isBusy(target)) {
    event.detail.shouldSwap = false;
    return;
  }
  scrolled[target.id] = remember(target);
});
document.addEventListener("htmx:afterSwap", (event) => {
  const target = document.getElementById(event.detail.target.id) ?? event.detail.target;
  dress();
  const kept = scrolled[target.id];
  if (kept) restore(target, kept);
  countSelected();
  stale(false);
});
for (const failure of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
  document.addEventListener(failure, () => stale(true));
}

function stale(isStale) {
  let place = document.getElementById("stale");
  if (!isStale) return place?.remove();
  if (place) return;
  place = document.createElement("p");
  place.id = "stale";
  place.className = "notice is-error";
  place.setAttribute("role", "status");
  place.textContent = "The service does not answer: what you see may be out of date.";
  document.getElementById("main")?.prepend(place);
}

// --- The keyboard.

function move(step) {
  const list = items();
  if (list.length === 0) return;
  const at = list.indexOf(focused());
  const next =
    at === -1 ? list[step > 0 ? 0 : list.length - 1] : list[Math.min(list.length - 1, Math.max(0, at + step))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

function showHelp(isShown) {
  const keys = document.getElementById("keys");
  if (!keys) return;
  keys.hidden = !isShown;
  for (const button of all("[data-help]")) button.setAttribute("aria-expanded", String(isShown));
}

/** The selected items, or else the one in focus: on its own, without a change to the selection. */
function press(key) {
  const isSelected =
    document.querySelector('.queue input[name="ids"]:checked, .queue input[name="all"]:checked') !== null;
  const item = focused();
  const button = document.querySelector(`.bar button[data-key="${CSS.escape(key)}"]`);
  if (isSelected) return button?.click();
  const link = (item ?? document.querySelector(".now"))?.querySelector(`.offers a[data-key="${CSS.escape(key)}"]`);
  if (link) return link.click();
  const own = document.querySelector(`.now button[data-key="${CSS.escape(key)}"]`);
  if (own) return own.click();
  if (!item || !button?.hasAttribute("formaction")) return;
  boxOf(item).checked = true;
  button.click();
}

const ACTIONS = {
  j: () => move(1),
  k: () => move(-1),
  x: () => {
    const box = focused() && boxOf(focused());
    if (!box) return;
    box.checked = !box.checked;
    countSelected();
  },
  o: () => focused()?.querySelector("[data-open]")?.click(),
  "/": () => document.getElementById("find")?.focus(),
  "?": () => showHelp(document.getElementById("keys")?.hidden ?? true),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const { target, key } = event;
  const isTyping = target.matches('input:not([type="checkbox"]), select, textarea');
  if (key === "Escape") return leave(target, isTyping);
  if (isTyping) return;
  if (key === "Enter") {
    if (target.matches(".queue .item")) ACTIONS.o();
    return;
  }
  const action = ACTIONS[key];
  if (!action && !/^[msraiz]$/.test(key)) return;
  event.preventDefault();
  if (action) action();
  else press(key);
});

function leave(target, isTyping) {
  if (document.querySelector('[data-keyboard="decision"]')) return document.querySelector("[data-back]")?.click();
  if (isTyping) return target.blur();
  for (const box of all(".queue input:checked")) box.checked = false;
  countSelected();
}

// A second click sends nothing twice; coming back to the page, it can be sent again.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
});
addEventListener("pageshow", () => {
  for (const form of all("form[data-sent]")) delete form.dataset.sent;
});
document.addEventListener("change", countSelected);
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button");
  if (!button) return;
  if (button.hasAttribute("data-help")) showHelp(document.getElementById("keys")?.hidden ?? true);
  if (button.dataset.copy === undefined) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "copied";
  } catch {
    button.textContent = "not allowed";
  }
  setTimeout(() => {
    button.textContent = "copy";
  }, 2000);
});

// After a decision the operator goes on where they were: at the item that took its place. After none, also with what was selected.
addEventListener("pagehide", () => {
  const list = items();
  if (!document.querySelector(".queue") || list.length === 0) return;
  const checked = all('.queue input[name="ids"]:checked').map((box) => box.value);
  const place = Math.max(0, list.indexOf(focused()));
  // Several decided at once: what comes next is where the first of them was.
  const first = list.findIndex((item) => boxOf(item)?.checked);
  sessionStorage.setItem("left", JSON.stringify({ place, first: first === -1 ? place : first, checked }));
});
document.addEventListener("click", (event) => {
  if (event.target.closest?.("[data-back]")) sessionStorage.setItem("back", "yes");
});
function comeBack() {
  const left = JSON.parse(sessionStorage.getItem("left") ?? "null");
  const isBack = sessionStorage.getItem("back") !== null;
  const isDone = document.querySelector(".notice.is-done") !== null;
  if (!document.querySelector(".queue") || left === null || !(isBack || isDone)) return;
  sessionStorage.removeItem("back");
  const list = items();
  list[Math.min(list.length - 1, isDone ? left.first : left.place)]?.focus();
  if (isDone) return;
  for (const item of list) if (left.checked.includes(item.dataset.id)) boxOf(item).checked = true;
  countSelected();
}
dress();
comeBack();
setInterval(showTimes, 1000);
