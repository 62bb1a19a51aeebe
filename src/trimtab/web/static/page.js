// What makes pages quicker to use; without it, links and forms do the same.
"use strict";

// A switch that is turned asks for the plan at once, and leaves the reader where they were.
document.addEventListener("change", (event) => {
  if (event.target.matches("#switches input[name=on]")) turned(event.target.id);
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

async function shown(address, focus) {
  const mine = ++asked;
  const main = document.getElementById("main");
  main.setAttribute("aria-busy", "true");
  const answer = await fetch(address);
  const text = await answer.text();
  if (mine !== asked) return;
  const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("main");
  if (!fresh) return location.assign(address);
  main.replaceWith(document.adoptNode(fresh));
  const again = focus && document.getElementById(focus);
  if (again) again.focus({ preventScroll: true });
  wait();
}

window.addEventListener("popstate", () => shown(location.href));

// While switches are made ready, look again.
function wait() {
  if (document.getElementById("waiting")) setTimeout(() => shown(location.href), 1500);
}
wait();

// "/" goes to the filter of the page.
document.addEventListener("keydown", (event) => {
  const field = document.querySelector("input[type=search]");
  if (event.key === "/" && field && !event.target.matches("input, textarea")) {
    event.preventDefault();
    field.focus();
  }
});
