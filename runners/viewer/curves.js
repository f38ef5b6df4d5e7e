// The curves of the run: success, and a choice of all other recorded numbers.

const TONES = ["tone-a", "tone-b", "tone-c", "tone-d"];
const AXES = { seconds: "seconds", update: "update" };
const NOT_SHOWN = new Set(["kind", "update", "seconds", "success"]);
const curveState = { axis: "seconds", shown: null };

// The environments of a run of several, and one empty name for a run of one.
const ENVS = [...new Set(DATA.settings.filter(([name]) => name === "env").flatMap(([, value]) => value.split(", ")))];
const SEVERAL = ENVS.length > 1;

function successKey(env) {
  return env ? `${env}/success` : "success";
}

function evaluationSeries(axis, env) {
  const kinds = new Map();
  for (const row of DATA.evaluations.filter((row) => row.env === env)) {
    const name = `${row.split} tasks, ${row.mode}`;
    if (!kinds.has(name)) kinds.set(name, []);
    kinds.get(name).push(row);
  }
  return [...kinds].map(([name, rows], i) => ({
    name: visible(name),
    tone: TONES[i % TONES.length],
    // Two points with training between them are no curve.
    line: rows.length > 2,
    dots: true,
    points: rows.map((row) => ({ x: row[axis], y: row.mean, low: row.low, high: row.high })),
  }));
}

function updateSeries(key, axis, name) {
  return { name, tone: "training", line: true, dots: false, points: DATA.updates.map((row) => ({ x: row[axis], y: row[key] })) };
}

function legend(series) {
  return el(
    "ul",
    { class: "legend" },
    series.map((one) => el("li", { class: one.tone }, el("span", { class: "swatch" }), one.name)),
  );
}

function labelOf(key) {
  const known = DATA.columns.find(([name]) => name === key);
  return known ? known[1] : visible(key.replaceAll("_", " "));
}

// Every recorded number, those with a label of their own first.
function recordedKeys() {
  const found = new Set(DATA.updates.flatMap((row) => Object.keys(row).filter((key) => isNumber(row[key]))));
  const labelled = DATA.columns.map(([key]) => key).filter((key) => found.has(key));
  return [...new Set([...labelled, ...found])].filter((key) => !NOT_SHOWN.has(key) && !ENVS.some((env) => key === successKey(env)));
}

function changes(key) {
  const [low, high] = extent(DATA.updates.map((row) => row[key]));
  return DATA.updates.some((row) => isNumber(row[key]) && row[key] !== DATA.updates[0][key]) && high > low;
}

function shownKeys() {
  if (!curveState.shown) {
    const labelled = new Set(DATA.columns.map(([key]) => key));
    curveState.shown = new Set(recordedKeys().filter((key) => labelled.has(key) && changes(key)));
  }
  return curveState.shown;
}

function toggle(label, pressed, act) {
  return el("button", { type: "button", class: "chip", "aria-pressed": String(pressed), onclick: act }, label);
}

function evaluationTable() {
  if (!DATA.evaluations.length) return null;
  const rows = DATA.evaluations.map((row) =>
    el(
      "tr",
      {},
      [row.update, ...(SEVERAL ? [row.env] : []), row.split, row.mode].map((cell) => el("td", {}, visible(String(cell)))),
      el("td", { class: "number" }, number(row.mean, 3)),
      el("td", { class: "number" }, `${number(row.low, 3)} to ${number(row.high, 3)}`),
      el("td", { class: "number" }, number(row.seconds, 0)),
    ),
  );
  const head = ["after update", ...(SEVERAL ? ["environment"] : []), "split", "mode", "success", "95 % interval", "seconds"];
  return el(
    "details",
    { class: "figures" },
    el("summary", {}, "The evaluations as a table"),
    el("table", {}, el("thead", {}, el("tr", {}, head.map((name) => el("th", {}, name)))), el("tbody", {}, rows)),
  );
}

function smallCurves(redraw, width) {
  const shown = shownKeys();
  const chips = recordedKeys().map((key) =>
    toggle(labelOf(key), shown.has(key), () => {
      if (!shown.delete(key)) shown.add(key);
      redraw();
    }),
  );
  const columns = Math.max(1, Math.floor((width + 24) / 330));
  const each = Math.floor((width - 24 * (columns - 1)) / columns);
  const plots = recordedKeys().filter((key) => shown.has(key)).map((key) => {
    const last = DATA.updates.map((row) => row[key]).filter(isNumber).at(-1);
    const series = [updateSeries(key, curveState.axis, labelOf(key))];
    const resting = `last ${short(last)}`;
    return plot({ title: labelOf(key), series, width: each, height: 150, xLabel: AXES[curveState.axis], resting });
  });
  return [el("h2", {}, "Other recorded numbers"), el("div", { class: "chips" }, chips), el("div", { class: "small-plots" }, plots)];
}

function drawCurves(page) {
  if (!DATA.updates.length && !DATA.evaluations.length) {
    page.append(el("p", { class: "empty" }, "No update and no evaluation is recorded yet."));
    return;
  }
  const redraw = () => {
    page.replaceChildren();
    drawCurves(page);
  };
  const width = room(page);
  const plots = (SEVERAL ? ENVS : [""]).flatMap((env) => {
    const training = updateSeries(successKey(env), curveState.axis, "training episodes, sampled");
    const series = [training, ...evaluationSeries(curveState.axis, env)].filter((one) => one.points.length);
    const title = env ? `Success, ${visible(env)}` : "Success";
    const height = Math.min(380, Math.max(240, width * 0.34));
    return [plot({ title, series, width, height, yDomain: [0, 1], xLabel: AXES[curveState.axis] }), legend(series)];
  });
  const axis = Object.keys(AXES).map((key) =>
    toggle(`against ${key === "update" ? "updates" : key}`, curveState.axis === key, () => {
      curveState.axis = key;
      redraw();
    }),
  );
  page.append(
    el("div", { class: "chips" }, axis),
    ...plots,
    evaluationTable(),
    ...(DATA.updates.length ? smallCurves(redraw, width) : []),
  );
}

function drawSettings(page) {
  const table = (rows) =>
    el("table", { class: "settings" }, el("tbody", {}, rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, visible(name)), el("td", {}, literal(value))))));
  const sections = new Map();
  for (const [name, value] of DATA.settings) {
    const [section, rest] = name.includes(".") ? [name.slice(0, name.indexOf(".")), name.slice(name.indexOf(".") + 1)] : ["run", name];
    if (!sections.has(section)) sections.set(section, []);
    sections.get(section).push([rest, value]);
  }
  for (const [name, value] of DATA.notes) {
    const section = name.slice(0, name.indexOf("."));
    if (!sections.has(section)) sections.set(section, []);
    sections.get(section).push([name.slice(section.length + 1), value]);
  }
  const parts = [...sections].map(([name, rows]) => el("section", {}, el("h2", {}, visible(name)), table(rows)));
  page.append(el("div", { class: "setting-sections" }, parts));
}
