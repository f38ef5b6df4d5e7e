// A line plot. Series: {name, tone, points: [{x, y, low?, high?}], line, dots}; a point without y breaks its line.

function ticks(low, high, wanted) {
  const raw = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(i * step || 0);
  const digits = Math.min(9, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  return found.map((value) => ({ value, label: Math.abs(value) >= 1e5 || digits > 6 ? short(value) : number(value, digits) }));
}

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!isNumber(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return [0, 1];
  if (low === high) return [low - (Math.abs(low) || 1) * 0.5, high + (Math.abs(high) || 1) * 0.5];
  return [low, high];
}

function pathOf(points, x, y) {
  let pen = "M";
  let path = "";
  for (const point of points) {
    if (!isNumber(point.y)) pen = "M";
    else {
      path += `${pen}${x(point.x).toFixed(1)} ${y(point.y).toFixed(1)}`;
      pen = "L";
    }
  }
  return path;
}

function axes(frame, width, height, x, y, xs, ys) {
  const [left, right, top, bottom] = frame;
  const grid = svg("g", { class: "grid" });
  for (const { value, label } of ys) {
    grid.append(
      svg("line", { x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      svg("text", { x: left - 6, y: y(value) + 3.5, "text-anchor": "end" }, label),
    );
  }
  for (const { value, label } of xs) {
    grid.append(svg("text", { x: x(value), y: height - bottom + 15, "text-anchor": "middle" }, label));
  }
  return grid;
}

function seriesMarks(series, x, y) {
  const marks = svg("g", { class: `series ${series.tone}` });
  if (series.line) marks.append(svg("path", { d: pathOf(series.points, x, y) }));
  for (const point of series.points) {
    if (!isNumber(point.y)) continue;
    if (isNumber(point.low) && isNumber(point.high)) {
      const at = x(point.x);
      const [low, high] = [y(point.low), y(point.high)];
      marks.append(svg("path", { class: "whisker", d: `M${at} ${low}V${high}M${at - 3} ${low}h6M${at - 3} ${high}h6` }));
    }
    if (series.dots) marks.append(svg("circle", { cx: x(point.x), cy: y(point.y), r: 3 }));
  }
  return marks;
}

function nearest(series, at) {
  const known = series.points.filter((point) => isNumber(point.y));
  return known.reduce((best, point) => (!best || Math.abs(point.x - at) < Math.abs(best.x - at) ? point : best), null);
}

// What the pointer is over, in words: the nearest point of every series at the nearest x there is.
function readout(allSeries, at, xLabel) {
  const points = allSeries.map((series) => [series, nearest(series, at)]).filter(([, point]) => point);
  if (!points.length) return ["", at];
  const x = points.map(([, p]) => p.x).reduce((best, own) => (Math.abs(own - at) < Math.abs(best - at) ? own : best));
  const said = points
    .filter(([, point]) => point.x === x)
    .map(([series, p]) => `${series.name} ${short(p.y)}${isNumber(p.low) ? ` [${short(p.low)}, ${short(p.high)}]` : ""}`);
  return [`${xLabel} ${short(x)}: ${said.join(", ")}`, x];
}

function plot({ title, series, width, height, yDomain, xLabel, resting = "" }) {
  const points = series.flatMap((one) => one.points);
  const known = points.filter((point) => isNumber(point.y));
  const [x0, x1] = extent(known.map((point) => point.x));
  const [y0, y1] = yDomain || extent(known.flatMap((point) => [point.y, point.low, point.high]));
  const frame = [46, 10, 10, 22];
  const [left, right, top, bottom] = frame;
  const x = (value) => left + ((value - x0) / (x1 - x0)) * (width - left - right);
  const y = (value) => height - bottom - ((value - y0) / (y1 - y0)) * (height - top - bottom);
  const cross = svg("line", { class: "cross", y1: top, y2: height - bottom, visibility: "hidden" });
  const said = el("span", { class: "readout" }, resting);
  const drawing = svg(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title, class: "plot" },
    axes(frame, width, height, x, y, ticks(x0, x1, width / 90), ticks(y0, y1, height / 45)),
    series.map((one) => seriesMarks(one, x, y)),
    cross,
  );
  drawing.addEventListener("pointermove", (event) => {
    const inside = (event.clientX - drawing.getBoundingClientRect().left - left) / (width - left - right);
    const [text, at] = readout(series, x0 + inside * (x1 - x0), xLabel);
    said.textContent = text;
    fill(cross, { x1: x(at), x2: x(at), visibility: "visible" }, []);
  });
  drawing.addEventListener("pointerleave", () => {
    said.textContent = resting;
    cross.setAttribute("visibility", "hidden");
  });
  return el("figure", {}, el("figcaption", {}, el("strong", {}, title), " ", said), drawing);
}
