// What makes pages quicker to use; without it, links and forms do the same.
"use strict";

// A switch that is turned asks for the plan at once, and leaves the reader where they were.
document.addEventListener("change", (event) => {
  if (event.target.matches("#switches input[name=on]")) turned(event.target.id);
});

// What a page waits for is cancelled, or begun again, and the page says so.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.id !== "steering") return;
  event.preventDefault();
  clearTimeout(again);
  shown(location.href, "steer", { method: "POST", body: new URLSearchParams(new FormData(form)) });
});

document.addEventListener("submit", (event) => {
  if (event.target.id === "switches") {
    event.preventDefault();
    turned(document.activeElement.id);
  }
});

function turned(focus) {
  const form = document.getElementById("switches");
  const off = [...form.querySelectorAll("input[name=on]:not(:checked)")].map((box) => box.value);
  const address = new URL(form.action);
  address.search = off.length ? "?off=" + off.map(encodeURIComponent).join(",") : "";
  history.pushState(null, "", address);
  shown(address, focus);
}

let asked = 0;

async function shown(address, focus, sent) {
  const mine = ++asked;
  const main = document.getElementById("main");
  main.setAttribute("aria-busy", "true");
  const answer = await fetch(address, sent);
  const text = await answer.text();
  if (mine !== asked) return;
  const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("main");
  if (!fresh) return location.assign(address);
  main.replaceWith(document.adoptNode(fresh));
  const again = focus && document.getElementById(focus);
  if (again) again.focus({ preventScroll: true });
  ready();
}

window.addEventListener("popstate", () => shown(location.href));

function go(address, focus) {
  history.pushState(null, "", address);
  shown(address, focus);
}

// The order of actions: dragged, or moved by Alt and an arrow. The arrows beside each action do the same without a script.
let dragged = null;

document.addEventListener("dragstart", (event) => {
  const item = event.target.closest && event.target.closest("#order > li[draggable]");
  if (!item) return;
  dragged = item;
  item.classList.add("dragged");
  event.dataTransfer.effectAllowed = "move";
  event.dataTransfer.setData("text/plain", item.dataset.id);
});

document.addEventListener("dragover", (event) => {
  const over = dragged && event.target.closest("#order > li");
  if (!over || over === dragged) return;
  event.preventDefault();
  const box = over.getBoundingClientRect();
  over.parentNode.insertBefore(dragged, event.clientY < box.top + box.height / 2 ? over : over.nextSibling);
});

document.addEventListener("drop", (event) => {
  if (dragged) event.preventDefault();
});

document.addEventListener("dragend", () => {
  if (!dragged) return;
  dragged.classList.remove("dragged");
  dragged = null;
  const list = document.getElementById("order");
  const ids = [...list.children].map((item) => encodeURIComponent(item.dataset.id));
  go(list.dataset.path + "?order=" + ids.join(","));
});

document.addEventListener("click", (event) => {
  const move = event.target.closest("#order a[data-move], .zoom-links a[id]");
  if (!move || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(move.href, move.id);
});

document.addEventListener("keydown", (event) => {
  if (!event.altKey || (event.key !== "ArrowUp" && event.key !== "ArrowDown")) return;
  const item = event.target.closest("#order > li");
  const move = item && item.querySelector(event.key === "ArrowUp" ? "[data-move=earlier]" : "[data-move=later]");
  if (!move) return;
  event.preventDefault();
  go(move.href, move.id);
});

// Zoom: drag across a picture, or + - and the arrows when it has the focus.
const FRAME_LEFT = 56;
let zoomed = null;

function span(box, first, hours) {
  const total = Number(box.dataset.total);
  const kept = Math.min(Math.max(Math.round(hours), 6), total);
  const from = Math.max(0, Math.min(Math.round(first), total - kept));
  const query = new URLSearchParams();
  if (box.dataset.what) query.set("what", box.dataset.what);
  if (kept < total) {
    query.set("from", from);
    query.set("hours", kept);
  }
  go(box.dataset.path + (query.size ? "?" + query : ""), box.id);
}

function hourAt(box, picture, x) {
  const place = picture.getBoundingClientRect();
  const at = ((x - place.left) / place.width) * picture.viewBox.baseVal.width;
  const share = (at - FRAME_LEFT) / (picture.viewBox.baseVal.width - FRAME_LEFT);
  return Number(box.dataset.first) + Math.min(Math.max(share, 0), 1) * Number(box.dataset.hours);
}

document.addEventListener("pointerdown", (event) => {
  const picture = event.target.closest && event.target.closest(".zoom svg");
  if (!picture || event.pointerType === "touch") return;
  const box = picture.closest(".zoom");
  const mark = document.createElement("div");
  mark.className = "zoom-mark";
  box.append(mark);
  zoomed = { box, picture, mark, x: event.clientX };
  event.preventDefault();
  box.focus({ preventScroll: true });
});

document.addEventListener("pointermove", (event) => {
  if (!zoomed) return;
  const place = zoomed.box.getBoundingClientRect();
  const [left, right] = [zoomed.x, event.clientX].sort((one, other) => one - other);
  zoomed.mark.style.setProperty("left", left - place.left + "px");
  zoomed.mark.style.setProperty("width", right - left + "px");
});

document.addEventListener("pointerup", (event) => {
  if (!zoomed) return;
  const { box, picture, mark, x } = zoomed;
  zoomed = null;
  mark.remove();
  if (Math.abs(event.clientX - x) < 8) return;
  const [from, to] = [hourAt(box, picture, x), hourAt(box, picture, event.clientX)].sort((one, other) => one - other);
  span(box, from, to - from);
});

document.addEventListener("keydown", (event) => {
  const box = event.target.matches(".zoom") && event.target;
  if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
  const first = Number(box.dataset.first), hours = Number(box.dataset.hours);
  const to = {
    "+": [first + hours / 4, hours / 2], "=": [first + hours / 4, hours / 2], "-": [first - hours / 2, hours * 2],
    ArrowLeft: [first - hours / 2, hours], ArrowRight: [first + hours / 2, hours],
  }[event.key];
  if (!to) return;
  event.preventDefault();
  span(box, ...to);
});

// Sliders over limits say what each would save.
function slide(control) {
  const input = control.querySelector("input");
  const [limit, saves] = control.dataset.stops.split(";")[Number(input.value)].split("|");
  const words = limit + ": saves " + saves + (saves === "nothing" ? "" : " a month");
  control.querySelector("output").textContent = words;
  input.setAttribute("aria-valuetext", words);
}

document.addEventListener("input", (event) => {
  const control = event.target.closest(".slider");
  if (control) slide(control);
});

// While something is worked out, look again.
let again = 0;

function ready() {
  clearTimeout(again);
  if (document.getElementById("waiting")) again = setTimeout(() => shown(location.href, document.activeElement.id), 1500);
  for (const control of document.querySelectorAll(".slider")) {
    control.hidden = false;
    slide(control);
  }
}
ready();

// "/" goes to the filter of the page.
document.addEventListener("keydown", (event) => {
  const field = document.querySelector("input[type=search]");
  if (event.key === "/" && field && !event.target.matches("input, textarea")) {
    event.preventDefault();
    field.focus();
  }
});
