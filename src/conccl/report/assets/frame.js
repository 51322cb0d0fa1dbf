// The page's data, colours and tooltip, and what starts everything.

const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
const KINDS = ["compute", "communication", "both", "copy", "idle"];

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function themeColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const colours = { ink: read("--ink"), muted: read("--muted"), line: read("--line"), panel: read("--panel") };
  for (const kind of KINDS) {
    colours[kind] = read(`--${kind}`);
    colours[`${kind}-ink`] = read(`--${kind}-ink`);
  }
  return colours;
}

// Three significant figures in the unit that keeps them short, as in the rest of the page.
function formatTime(ns) {
  const size = Math.abs(ns);
  for (const [unit, factor] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (size >= factor) {
      const value = size / factor;
      const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
      return `${ns < 0 ? "−" : ""}${value.toFixed(digits).replace(/\.?0+$/, (zeros) => (zeros.startsWith(".") ? "" : value >= 100 ? zeros : ""))} ${unit}`;
    }
  }
  return `${Math.round(ns)} ns`;
}

function showTip(lines, x, y) {
  tip.replaceChildren(...lines.map(([kind, text]) => element("p", { class: kind }, text)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(x + 14, window.innerWidth - box.width - 8);
  const top = y + 18 + box.height > window.innerHeight ? y - box.height - 12 : y + 18;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

function hideTip() {
  tip.hidden = true;
}

// The contents mark the section that is being read: the last whose heading has passed the top third.
function followSections() {
  const links = [...document.querySelectorAll(".side a")];
  const sections = links.map((link) => document.querySelector(link.hash));
  const mark = () => {
    const passed = sections.filter((section) => section.getBoundingClientRect().top < window.innerHeight / 3);
    const atEnd = window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 2;
    const current = atEnd ? sections.length - 1 : Math.max(0, passed.length - 1);
    links.forEach((link, place) => (place === current ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
  };
  window.addEventListener("scroll", mark, { passive: true });
  mark();
}

function start() {
  followSections();
  for (const table of document.querySelectorAll(".block.table")) new SortableTable(table);
  for (const figure of document.querySelectorAll(".block.timeline")) {
    new TimelineView(figure, data.timelines[Number(figure.dataset.timeline)]);
  }
}
