// Timelines under each other on one scale: zoom, move, pick. One canvas a rank, drawn only while it is seen.

const STRIP = 18;
const LANE = 17;
const GAP = 2;
const RULER = 20;
const STEPS = 18;

// A kernel's name without what it returns, its parameters and its template arguments.
function plainName(name) {
  return name.replace(/^void /, "").replace(/\(anonymous namespace\)::/g, "").replace(/(\w)[<(].*$/s, "$1");
}

class TimelineView {
  constructor(figure, timeline) {
    this.figure = figure;
    this.names = timeline.names;
    this.labels = timeline.names.map(plainName);
    this.search = null;
    this.picked = null;
    this.status = figure.querySelector(".picked");
    this.charts = timeline.charts.map((packed, place) => this.buildChart(packed, figure.querySelector(`[data-chart="${place}"]`)));
    this.extent = Math.max(1, ...this.charts.flatMap((chart) => chart.ranks.map((rank) => rank.shift + rank.span)));
    this.view = { from: 0, to: this.extent };
    this.buildToolbar();
    this.fit();
    new ResizeObserver(() => this.draw()).observe(figure);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    for (const [event, theme] of [["beforeprint", "light"], ["afterprint", ""]]) {
      window.addEventListener(event, () => { document.documentElement.dataset.theme = theme; this.drawNow(); });
    }
  }

  buildChart(packed, holder) {
    const plot = holder.querySelector(".plot");
    const chart = { origin: 0, plot, ranks: [], ruler: element("canvas", { "aria-hidden": "true" }), overview: element("canvas", { "aria-hidden": "true" }) };
    plot.append(
      element("div", { class: "row overview" }, element("div", { class: "gutter" }, "all of it"), element("div", { class: "ink" }, chart.overview)),
      element("div", { class: "row ruler" }, element("div", { class: "gutter" }), element("div", { class: "ink" }, chart.ruler)),
    );
    packed.ranks.forEach((rank, place) => chart.ranks.push(this.buildRank(chart, rank, packed.ranks.length > 2 && place > 0)));
    chart.steps = longestSteps(chart.ranks);
    this.listen(chart);
    return chart;
  }

  buildRank(chart, packed, folded) {
    const rank = { label: packed.label, shift: packed.shift, span: packed.span, steps: packed.steps, lanes: packed.lanes.map(decodeLane), states: decodeStates(packed.states), folded, seen: true };
    rank.canvas = element("canvas", { "aria-hidden": "true" });
    rank.button = element("button", { type: "button", class: "fold", tabindex: "-1" }, packed.label);
    rank.gutter = element("div", { class: "gutter" }, rank.button, ...rank.lanes.map((lane) => element("span", { class: "lane", title: lane.label }, lane.label)));
    rank.row = element("div", { class: "row rank" }, rank.gutter, element("div", { class: "ink" }, rank.canvas));
    rank.button.addEventListener("click", () => this.fold(rank, !rank.folded));
    chart.plot.append(rank.row);
    new IntersectionObserver((entries) => { rank.seen = entries[entries.length - 1].isIntersecting; if (rank.seen) this.draw(); }, { rootMargin: "200px" }).observe(rank.row);
    this.foldRow(rank);
    return rank;
  }

  foldRow(rank) {
    rank.row.classList.toggle("folded", rank.folded);
    rank.button.setAttribute("aria-expanded", String(!rank.folded));
  }

  fold(rank, folded) {
    rank.folded = folded;
    this.foldRow(rank);
    this.draw();
  }

  // Fold all, or where all are folded unfold all.
  foldAll() {
    const ranks = this.charts.flatMap((chart) => chart.ranks);
    const folded = ranks.some((rank) => !rank.folded);
    for (const rank of ranks) this.fold(rank, folded);
  }

  buildToolbar() {
    const acts = { "zoom-in": () => this.zoom(0.5), "zoom-out": () => this.zoom(2), fit: () => this.fit(), fold: () => this.foldAll(), "previous-step": () => this.goStep(-1), "next-step": () => this.goStep(1) };
    for (const button of this.figure.querySelectorAll("[data-do]")) button.addEventListener("click", acts[button.dataset.do]);
    this.select = this.figure.querySelector("select");
    const count = Math.max(0, ...this.charts.map((chart) => chart.steps.length));
    if (count) {
      this.figure.querySelector(".steps").hidden = false;
      this.select.append(element("option", { value: "-1" }, "All steps"));
      for (let step = 0; step < count; step++) {
        const named = this.charts.find((chart) => chart.steps.length > step);
        this.select.append(element("option", { value: String(step) }, named.steps[step][0]));
      }
      this.select.addEventListener("change", () => this.showStep(Number(this.select.value)));
    }
    const find = this.figure.querySelector(".find input");
    find.addEventListener("input", () => this.find(find.value));
    find.addEventListener("keydown", (event) => { if (event.key === "Enter") this.pickNext(event.shiftKey ? -1 : 1); });
  }

  find(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.search = words.length ? new Set(this.names.flatMap((name, id) => (words.every((word) => name.toLowerCase().includes(word)) ? [id] : []))) : null;
    if (this.search) this.say(`${this.search.size} name${this.search.size === 1 ? "" : "s"} found; Enter goes to the next kernel.`);
    this.draw();
  }

  // Views.

  fit() {
    for (const chart of this.charts) chart.origin = 0;
    if (this.select) this.select.value = "-1";
    const margin = this.extent * 0.005;
    this.setView(-margin, this.extent + margin);
  }

  showStep(step) {
    if (step < 0) return this.fit();
    let longest = 1;
    for (const chart of this.charts) {
      const [, begin, end] = chart.steps[Math.min(step, chart.steps.length - 1)] || ["", 0, this.extent];
      chart.origin = begin;
      longest = Math.max(longest, end - begin);
    }
    this.select.value = String(step);
    this.setView(-longest * 0.01, longest * 1.01);
  }

  goStep(by) {
    const last = this.select.options.length - 2;
    if (last < 0) return;
    this.showStep(Math.min(last, Math.max(0, Number(this.select.value) + by)));
  }

  setView(from, to) {
    const least = 20;
    const most = this.extent * 1.2;
    let span = Math.min(most, Math.max(least, to - from));
    const lowest = -Math.max(0, ...this.charts.map((chart) => chart.origin)) - 0.1 * this.extent;
    let begin = span === to - from ? from : (from + to - span) / 2;
    begin = Math.min(Math.max(begin, lowest), 1.1 * this.extent - span * 0.1);
    this.view = { from: begin, to: begin + span };
    this.draw();
  }

  zoom(factor, at = 0.5) {
    const { from, to } = this.view;
    const middle = from + (to - from) * at;
    this.setView(middle - (middle - from) * factor, middle + (to - middle) * factor);
  }

  move(share) {
    const by = (this.view.to - this.view.from) * share;
    this.setView(this.view.from + by, this.view.to + by);
  }

  // Drawing.

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    this.waiting = 0;
    this.colours = themeColours();
    for (const chart of this.charts) {
      this.drawOverview(chart);
      this.drawRuler(chart);
      for (const rank of chart.ranks) if (rank.seen) this.drawRank(chart, rank);
    }
  }

  // What a rank's own clock shows at the view's ends.
  rankView(chart, rank) {
    const move = chart.origin - rank.shift;
    return { from: this.view.from + move, to: this.view.to + move, label: (id) => this.labels[id] };
  }

  drawRank(chart, rank) {
    const width = rank.canvas.parentElement.clientWidth;
    const height = STRIP + (rank.folded ? 0 : rank.lanes.length * (LANE + GAP)) + 2;
    const context = prepare(rank.canvas, width, height);
    const view = this.rankView(chart, rank);
    paintStates(context, rank.states, view, width, 0, STRIP, this.colours);
    context.font = FONT;
    context.textBaseline = "middle";
    if (!rank.folded) rank.lanes.forEach((lane, place) => {
      const chosen = this.picked && this.picked.lane === lane ? this.picked.row : -1;
      paintLane(context, lane, view, width, STRIP + GAP + place * (LANE + GAP), LANE, this.colours, chosen, this.search);
    });
    this.drawStepBorders(context, rank, view, width, height);
  }

  drawStepBorders(context, rank, view, width, height) {
    context.fillStyle = this.colours.ink;
    context.globalAlpha = 0.35;
    for (const [, begin] of rank.steps.slice(1)) {
      const x = Math.round(((begin - view.from) / (view.to - view.from)) * width);
      if (x > 0 && x < width) context.fillRect(x, 0, 1, height);
    }
    context.globalAlpha = 1;
  }

  drawRuler(chart) {
    const width = chart.ruler.parentElement.clientWidth;
    const view = { from: this.view.from + chart.origin, to: this.view.to + chart.origin };
    const context = prepare(chart.ruler, width, RULER + (chart.steps.length ? STEPS : 0));
    paintRuler(context, this.view, width, RULER, this.colours);
    paintSteps(context, chart.steps, view, width, RULER, STEPS - 3, this.colours);
  }

  drawOverview(chart) {
    const width = chart.overview.parentElement.clientWidth;
    const each = Math.max(2, Math.min(14, 48 / chart.ranks.length));
    const height = Math.round(each * chart.ranks.length);
    const context = prepare(chart.overview, width, height);
    chart.ranks.forEach((rank, place) => {
      paintStates(context, rank.states, { from: -rank.shift, to: this.extent - rank.shift }, width, place * each, each - (each > 5 ? 1 : 0), this.colours);
    });
    const left = ((this.view.from + chart.origin) / this.extent) * width;
    const right = ((this.view.to + chart.origin) / this.extent) * width;
    context.fillStyle = this.colours.panel;
    context.globalAlpha = 0.65;
    context.fillRect(0, 0, left, height);
    context.fillRect(right, 0, width - right, height);
    context.globalAlpha = 1;
    const whole = left <= 0 && right >= width;
    context.strokeStyle = whole ? this.colours.line : this.colours.ink;
    context.lineWidth = 1.5;
    context.strokeRect(Math.max(0.75, left), 0.75, Math.max(2, Math.min(width - 0.75, right) - Math.max(0.75, left)), height - 1.5);
  }

  // Pointing and picking.

  listen(chart) {
    const plot = chart.plot;
    let drag = null;
    plot.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !event.target.closest(".ink")) return;
      drag = { x: event.clientX, moved: false, overview: event.target === chart.overview };
      if (drag.overview) this.centre(chart, event);
    });
    plot.addEventListener("pointermove", (event) => {
      if (!drag) return this.hover(chart, event);
      const by = event.clientX - drag.x;
      if (!drag.moved && Math.abs(by) < 4) return;
      if (!drag.moved) plot.setPointerCapture(event.pointerId);
      drag.moved = true;
      drag.x = event.clientX;
      hideTip();
      if (drag.overview) this.centre(chart, event);
      else this.move(-by / chart.ruler.clientWidth);
    });
    const release = (event) => {
      if (drag && !drag.moved && !drag.overview && event.type === "pointerup") this.pickAt(chart, event);
      drag = null;
    };
    plot.addEventListener("pointerup", release);
    plot.addEventListener("pointercancel", release);
    plot.addEventListener("pointerleave", hideTip);
    plot.addEventListener("dblclick", (event) => this.zoom(0.25, this.shareAt(chart, event)));
    plot.addEventListener("wheel", (event) => this.wheel(chart, event), { passive: false });
    plot.addEventListener("keydown", (event) => this.key(chart, event));
  }

  centre(chart, event) {
    const at = this.shareAt(chart, event) * this.extent - chart.origin;
    const half = (this.view.to - this.view.from) / 2;
    this.setView(at - half, at + half);
  }

  shareAt(chart, event) {
    const box = chart.ruler.getBoundingClientRect();
    return (event.clientX - box.left) / box.width;
  }

  // The page scrolls as ever; with Ctrl (or a pinch) the wheel zooms, sideways it moves.
  wheel(chart, event) {
    if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 120), this.shareAt(chart, event));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move((event.deltaX || event.deltaY) / chart.ruler.clientWidth);
    else return;
    event.preventDefault();
    hideTip();
  }

  key(chart, event) {
    if (event.target !== chart.plot || event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.fit(), Home: () => this.fit(), ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2), "[": () => this.goStep(-1), "]": () => this.goStep(1), ",": () => this.pickNext(-1, chart), ".": () => this.pickNext(1, chart), ArrowUp: () => this.pickLane(-1, chart), ArrowDown: () => this.pickLane(1, chart), f: () => this.foldAll(), Escape: () => this.pick(null) };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  // The row below the pointer, or null.
  at(chart, event) {
    const rank = chart.ranks.find((candidate) => candidate.canvas === event.target);
    if (!rank) return null;
    const box = rank.canvas.getBoundingClientRect();
    const view = this.rankView(chart, rank);
    const perPixel = (view.to - view.from) / box.width;
    const moment = view.from + (event.clientX - box.left) * perPixel;
    const y = event.clientY - box.top;
    const place = Math.floor((y - STRIP - GAP) / (LANE + GAP));
    const lane = y < STRIP ? null : rank.lanes[place];
    const row = lane ? rowAt(lane, moment, 2 * perPixel) : -1;
    return { chart, rank, moment, lane, row, strip: y < STRIP };
  }

  hover(chart, event) {
    const found = this.at(chart, event);
    if (!found) return hideTip();
    if (found.row >= 0) return showTip(this.describe(found), event.clientX, event.clientY);
    if (!found.strip || found.moment < 0 || found.moment > found.rank.span) return hideTip();
    showTip(this.describeState(found), event.clientX, event.clientY);
  }

  describe({ rank, lane, row }) {
    const step = stepAt(rank, lane.start[row]);
    const where = [rank.label, lane.label, step].filter(Boolean).join(" · ");
    return [["name", this.names[lane.name[row]]], ["time", `${formatTime(lane.end[row] - lane.start[row])} from ${formatTime(lane.start[row] + rank.shift)}`], ["where", where]];
  }

  describeState({ rank, moment }) {
    const row = Math.min(rank.states.count - 1, firstAbove(rank.states.end, rank.states.count, moment));
    const begin = row > 0 ? rank.states.end[row - 1] : 0;
    const label = ["compute only", "communication only", "compute and communication", "copy only", "idle"][rank.states.kind.charCodeAt(row) - 48];
    return [["name", label], ["time", `${formatTime(rank.states.end[row] - begin)} from ${formatTime(begin + rank.shift)}`], ["where", [rank.label, stepAt(rank, moment)].filter(Boolean).join(" · ")]];
  }

  pickAt(chart, event) {
    const found = this.at(chart, event);
    this.pick(found && found.row >= 0 ? found : null);
  }

  pick(found) {
    this.picked = found;
    this.say(found ? this.describe(found).map(([, text]) => text).join(" · ") : "");
    this.draw();
  }

  // The next row of the lane (that the search finds), moved into view.
  pickNext(by, chart = this.charts[0]) {
    const from = this.picked || this.firstPick(chart);
    if (!from) return;
    for (const found of this.walk(from, by)) {
      if (this.search && !this.search.has(found.lane.name[found.row])) continue;
      this.pick(found);
      return this.reveal(found);
    }
  }

  firstPick(chart) {
    const rank = chart.ranks.find((candidate) => candidate.lanes.length);
    return rank && { chart, rank, lane: rank.lanes[0], row: firstAbove(rank.lanes[0].reach, rank.lanes[0].count, this.rankView(chart, rank).from) - 1 };
  }

  // Rows after (or before) a picked one: along its lane, then along the lanes and ranks that follow.
  *walk(from, by) {
    const lanes = this.charts.flatMap((chart) => chart.ranks.flatMap((rank) => rank.lanes.map((lane) => ({ chart, rank, lane }))));
    let place = lanes.findIndex((entry) => entry.lane === from.lane);
    for (let row = from.row + by, left = lanes.length; left >= 0; left--) {
      for (; row >= 0 && row < lanes[place].lane.count; row += by) yield { ...lanes[place], row };
      place = (place + by + lanes.length) % lanes.length;
      row = by > 0 ? 0 : lanes[place].lane.count - 1;
    }
  }

  pickLane(by, chart) {
    const lanes = chart.ranks.flatMap((rank) => rank.lanes.map((lane) => ({ chart, rank, lane })));
    if (!lanes.length) return;
    const now = this.picked ? lanes.findIndex((entry) => entry.lane === this.picked.lane) : -1;
    const next = lanes[Math.min(lanes.length - 1, Math.max(0, now + by))];
    const view = this.rankView(chart, next.rank);
    const middle = this.picked && now >= 0 ? this.picked.lane.start[this.picked.row] : (view.from + view.to) / 2;
    const row = Math.min(next.lane.count - 1, firstAbove(next.lane.reach, next.lane.count, middle));
    this.pick({ ...next, row });
    this.reveal(this.picked);
  }

  reveal({ chart, rank, lane, row }) {
    if (rank.folded) this.fold(rank, false);
    const begin = lane.start[row] + rank.shift - chart.origin;
    const end = lane.end[row] + rank.shift - chart.origin;
    const { from, to } = this.view;
    if (begin >= from && end <= to && end - begin > (to - from) / 400) return;
    const half = Math.max((end - begin) * 4, (to - from) / 2 > (end - begin) * 200 ? (end - begin) * 20 : (to - from) / 2);
    this.setView((begin + end) / 2 - half, (begin + end) / 2 + half);
  }

  say(text) {
    this.status.textContent = text || this.hint || (this.hint = this.status.textContent);
  }
}

function stepAt(rank, moment) {
  const step = rank.steps.find(([, begin, end]) => begin <= moment && moment < end);
  return step ? step[0] : "";
}

// A chart's steps, from the first start to the last end over its ranks, on the chart's clock.
function longestSteps(ranks) {
  const steps = new Map();
  for (const rank of ranks) {
    for (const [name, begin, end] of rank.steps) {
      const known = steps.get(name) || [name, Infinity, -Infinity];
      steps.set(name, [name, Math.min(known[1], begin + rank.shift), Math.max(known[2], end + rank.shift)]);
    }
  }
  return [...steps.values()].sort((a, b) => a[1] - b[1]);
}
