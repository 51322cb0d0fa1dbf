// Drawing on canvas. A column of pixels shows the exact share of its time, however many rows fall into it.

function prepare(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const wide = Math.round(width * scale);
  const high = Math.round(height * scale);
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

const FONT = "11px system-ui, -apple-system, 'Segoe UI', sans-serif";

// Rows wider than this many pixels are boxes of their own; narrower ones add to their columns' shares.
const BOX = 2.5;

function paintLane(context, lane, view, width, y, height, colours, chosen, search) {
  const kind = lane.kind === "fused" ? "both" : lane.kind;
  const perPixel = (view.to - view.from) / width;
  const shares = new Float32Array(width + 1);
  const found = search ? new Uint8Array(width + 1) : null;
  context.fillStyle = colours[kind];
  const first = firstAbove(lane.reach, lane.count, view.from);
  for (let row = first; row < lane.count && lane.start[row] < view.to; row++) {
    const left = Math.max(0, (lane.start[row] - view.from) / perPixel);
    const right = Math.min(width, (lane.end[row] - view.from) / perPixel);
    const hit = !search || search.has(lane.name[row]);
    if (right - left < BOX) {
      addShare(shares, left, right);
      if (found && hit) found[Math.floor(left)] = 1;
    } else {
      paintBox(context, lane, row, left, right, y, height, colours, kind, hit, row === chosen, view);
    }
  }
  paintShares(context, shares, width, y, height, colours[kind], search ? 0.25 : 1);
  if (found) {
    context.fillStyle = colours[kind];
    for (let x = 0; x < width; x++) if (found[x]) context.fillRect(x, y, 1, height);
  }
}

function paintBox(context, lane, row, left, right, y, height, colours, kind, hit, chosen, view) {
  context.globalAlpha = hit ? 1 : 0.25;
  context.fillRect(left, y, Math.max(1, right - left - 0.75), height);
  context.globalAlpha = 1;
  if (chosen) {
    context.strokeStyle = colours.ink;
    context.lineWidth = 2;
    context.strokeRect(left + 1, y + 1, Math.max(1, right - left - 2.75), height - 2);
  }
  if (right - left > 46 && hit) {
    context.save();
    context.beginPath();
    context.rect(left + 3, y, right - left - 8, height);
    context.clip();
    context.fillStyle = colours[`${kind}-ink`];
    const label = view.label(lane.name[row]);
    const fits = (right - left - 9) / context.measureText(label).width;
    context.fillText(fits < 1 ? `${label.slice(0, Math.floor(label.length * fits) - 1)}…` : label, left + 4, y + height / 2 + 0.5);
    context.restore();
    context.fillStyle = colours[kind];
  }
}

// A row from left to right (pixels) adds to each column the part of it that it covers.
function addShare(shares, left, right) {
  let column = Math.floor(left);
  while (column < right && column < shares.length) {
    shares[column] += Math.min(right, column + 1) - Math.max(left, column);
    column += 1;
  }
}

// Columns of about equal share are one rectangle; the faintest is still seen.
function paintShares(context, shares, width, y, height, colour, strength) {
  context.fillStyle = colour;
  for (let x = 0; x < width; ) {
    const level = Math.min(8, Math.ceil(shares[x] * 8));
    let next = x + 1;
    while (next < width && Math.min(8, Math.ceil(shares[next] * 8)) === level) next++;
    if (level > 0) {
      context.globalAlpha = strength * (0.2 + 0.1 * level);
      context.fillRect(x, y, next - x, height);
    }
    x = next;
  }
  context.globalAlpha = 1;
}

// The strip: every column is stacked by the shares of the five states, idle on top.
const STACK = [0, 2, 1, 3, 4];

function paintStates(context, states, view, width, y, height, colours) {
  const perPixel = (view.to - view.from) / width;
  const mixed = KINDS.map(() => null);
  let row = firstAbove(states.end, states.count, view.from);
  let begin = row > 0 ? states.end[row - 1] : 0;
  for (; row < states.count && begin < view.to; row++) {
    const left = Math.max(0, (begin - view.from) / perPixel);
    const right = Math.min(width, (states.end[row] - view.from) / perPixel);
    begin = states.end[row];
    const kind = states.kind.charCodeAt(row) - 48;
    const inner = Math.ceil(left);
    const outer = Math.floor(right);
    if (outer > inner) {
      context.fillStyle = colours[KINDS[kind]];
      context.fillRect(inner, y, outer - inner, height);
    }
    mixed[kind] = mixed[kind] || new Float32Array(width + 1);
    if (outer < inner) mixed[kind][outer] += right - left;
    else {
      if (inner > left) mixed[kind][inner - 1] += inner - left;
      if (right > outer) mixed[kind][outer] += right - outer;
    }
  }
  paintStacks(context, mixed, width, y, height, colours);
}

function paintStacks(context, mixed, width, y, height, colours) {
  for (let x = 0; x < width; x++) {
    let bottom = y + height;
    for (const kind of STACK) {
      const share = mixed[kind] ? mixed[kind][x] : 0;
      if (share <= 0) continue;
      const tall = Math.min(1, share) * height;
      context.fillStyle = colours[KINDS[kind]];
      context.fillRect(x, bottom - tall, 1, tall);
      bottom -= tall;
    }
  }
}

// Round steps of time along the top, with as many digits as the step needs.
function paintRuler(context, view, width, height, colours) {
  const rough = ((view.to - view.from) / width) * 110;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((candidate) => candidate >= rough);
  context.font = FONT;
  context.textBaseline = "middle";
  for (let count = Math.ceil(view.from / step); count * step < view.to; count++) {
    const at = count * step;
    const x = ((at - view.from) / (view.to - view.from)) * width;
    context.fillStyle = colours.line;
    context.fillRect(Math.round(x), 0, 1, height);
    context.fillStyle = colours.muted;
    const text = rulerLabel(at, step, Math.max(Math.abs(view.from), Math.abs(view.to)));
    if (x + context.measureText(text).width + 6 < width) context.fillText(text, x + 5, height / 2);
  }
}

function rulerLabel(at, step, largest) {
  const [unit, factor] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([, size]) => largest >= size) || ["ns", 1];
  const digits = Math.max(0, Math.ceil(Math.log10(factor / step) - 1e-9));
  return at === 0 ? "0" : `${(at / factor).toFixed(digits)} ${unit}`;
}

// Steps stand below the ruler; their borders go through all ranks.
function paintSteps(context, steps, view, width, y, height, colours) {
  const perPixel = (view.to - view.from) / width;
  context.font = FONT;
  context.textBaseline = "middle";
  steps.forEach(([name, begin, end], place) => {
    const left = Math.max(0, (begin - view.from) / perPixel);
    const right = Math.min(width, (end - view.from) / perPixel);
    if (right <= 0 || left >= width || right - left < 1) return;
    context.globalAlpha = place % 2 ? 0.5 : 0.9;
    context.fillStyle = colours.line;
    context.fillRect(left, y, Math.max(1, right - left - 1), height);
    context.globalAlpha = 1;
    // The whole name, else its number; a name cut short would say the same of every step.
    const text = [name, name.replace(/^.*?(?=[#*]?\d+$)/, "")].find((each) => each && context.measureText(each).width <= right - left - 9);
    if (!text) return;
    context.fillStyle = colours.muted;
    context.fillText(text, left + 5, y + height / 2 + 0.5);
  });
}
