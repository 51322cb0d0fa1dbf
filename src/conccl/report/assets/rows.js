// Columns of a timeline: decoding, and finding what lies at or after a moment. Times are ns in doubles (exact).

// Starts come as steps from one row to the next, which keeps the page small.
function decodeLane(packed) {
  const count = packed.durations.length;
  const lane = { label: packed.label, kind: packed.kind, count, start: new Float64Array(count), end: new Float64Array(count), reach: new Float64Array(count), name: packed.names };
  let at = 0;
  let reach = -Infinity;
  for (let row = 0; row < count; row++) {
    at += packed.steps[row];
    lane.start[row] = at;
    lane.end[row] = at + packed.durations[row];
    reach = Math.max(reach, lane.end[row]);
    lane.reach[row] = reach;
  }
  return lane;
}

// States follow each other and fill the window, so lengths say all.
function decodeStates(packed) {
  const count = packed.lengths.length;
  const states = { count, end: new Float64Array(count), kind: packed.kinds };
  let at = 0;
  for (let row = 0; row < count; row++) {
    at += packed.lengths[row];
    states.end[row] = at;
  }
  return states;
}

// The first index whose value is above the bound, in a column that never falls.
function firstAbove(column, count, bound) {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] > bound) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The row that a moment lies in, or the nearest within a tolerance; -1 where there is none.
function rowAt(lane, moment, tolerance) {
  let best = -1;
  let distance = tolerance;
  for (let row = firstAbove(lane.reach, lane.count, moment - tolerance); row < lane.count && lane.start[row] <= moment + tolerance; row++) {
    const away = Math.max(lane.start[row] - moment, moment - lane.end[row], 0);
    if (away < distance || (away === 0 && distance === 0)) {
      best = row;
      distance = away;
    }
  }
  return best;
}
