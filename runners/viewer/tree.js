// The merged tree of a group: states as nodes, actions as edges, the end of each episode as a leaf.

const ROW = 58;
const PAD = { left: 26, right: 106, top: 26, bottom: 34 };

// Depth and row of every state; leaves take the rows one after another, a parent stands in the middle of its children.
function layout(tree) {
  const children = tree.map(() => []);
  tree.forEach((state, i) => state.parent >= 0 && children[state.parent].push(i));
  const place = tree.map(() => ({ depth: 0, row: 0 }));
  tree.forEach((state, i) => {
    if (state.parent >= 0) place[i].depth = place[state.parent].depth + 1;
  });
  let rows = 0;
  const stack = [[0, false]];
  while (stack.length) {
    const [i, done] = stack.pop();
    if (!children[i].length) {
      place[i].row = rows;
      rows += 1;
    } else if (done) {
      const below = children[i].map((child) => place[child].row);
      place[i].row = (below[0] + below.at(-1)) / 2;
    } else {
      stack.push([i, true], ...children[i].map((child) => [child, false]).reverse());
    }
  }
  return { place, children, rows, depth: Math.max(...place.map((p) => p.depth)) };
}

// Which states the episode went through.
function pathOfEpisode(tree, episode) {
  const path = new Set();
  let at = tree.findIndex((state) => state.ends.includes(episode));
  while (at >= 0) {
    path.add(at);
    at = tree[at].parent;
  }
  return path;
}

function valueOf(group, state) {
  if (state.ends.length) return group.episodes[state.ends[0]].end_value;
  const next = group.episodes[state.episode].turns?.[state.turn + 1];
  return next ? next.value : null;
}

// What an action does, without its thought: the last call in it.
function gist(text) {
  const open = text.lastIndexOf("<action>");
  const close = text.indexOf("</action>", open);
  const inside = open >= 0 ? text.slice(open + 8, close >= 0 ? close : undefined) : text;
  return visible(inside.trim().split("\n").at(-1).replaceAll("\t", " ")) || "(nothing)";
}

// Cut to a width in columns; East Asian characters take two.
function cut(text, columns) {
  let used = 0;
  let out = "";
  for (const character of text) {
    used += /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u.test(character) ? 2 : 1;
    if (used > columns) return out + "…";
    out += character;
  }
  return out;
}

function verdict(episode) {
  if (episode.fault) return ["fault", "⚠", "environment fault"];
  if (episode.success === true) return ["good", "✓", "success"];
  if (episode.turns?.at(-1)?.truncated) return ["bad", "✗", "truncated"];
  return episode.success === false ? ["bad", "✗", "failure"] : ["unknown", "·", "no verdict"];
}

function leafMark(group, state, x, y) {
  if (!state.ends.length) return null;
  const [tone, mark, word] = verdict(group.episodes[state.ends[0]]);
  const times = state.ends.length > 1 ? ` ×${state.ends.length}` : "";
  return svg("text", { class: `leaf ${tone}`, x: x + 12, y: y + 4 }, `${mark} ${word}${times}`);
}

// The shadow prompt's answer hangs under its state.
function valueMark(group, state, x, y) {
  const value = valueOf(group, state);
  if (!isNumber(value)) return null;
  return svg(
    "g",
    { class: "value" },
    svg("line", { x1: x, x2: x, y1: y + 6, y2: y + 15 }),
    svg("text", { x, y: y + 26, "text-anchor": "middle" }, `V ${number(value)}`),
  );
}

function edge(group, state, from, to, step) {
  const turn = group.episodes[state.episode].turns[state.turn];
  const bend = from.y === to.y ? 6 : Math.min(step * 0.3, 40);
  const d = `M${from.x + 6} ${from.y}C${from.x + bend} ${from.y} ${from.x + bend * 0.4} ${to.y} ${from.x + bend * 1.3} ${to.y}L${to.x - 6} ${to.y}`;
  const numbers = [];
  if (turn.reward) numbers.push(`r ${signed(turn.reward)}`);
  if (isNumber(turn.advantage)) numbers.push(`A ${signed(turn.advantage)}`);
  const middle = (from.x + bend + to.x - 6) / 2;
  return [
    svg("title", {}, `${gist(turn.action)}\nreward ${number(turn.reward)}, advantage ${signed(turn.advantage)}, taken ${state.count}×`),
    svg("path", { class: "touch", d }),
    svg("path", { class: `edge ${sign(turn.advantage)}`, d, "stroke-width": 1.2 + Math.log2(state.count) * 0.9 }),
    svg("text", { class: "action", x: middle, y: to.y - 7, "text-anchor": "middle" }, cut(gist(turn.action), (step - bend - 16) / 6.2)),
    svg("text", { class: `credit ${sign(turn.advantage)}`, x: middle, y: to.y + 14, "text-anchor": "middle" }, numbers.join(" · ")),
  ];
}

// The drawing; ``open(episode)`` is called with the number in the group of the episode whose path was chosen.
function drawTree(group, current, width, open) {
  const { tree } = group;
  const { place, rows, depth } = layout(tree);
  const step = Math.min(210, Math.max(108, (width - PAD.left - PAD.right) / Math.max(1, depth)));
  const at = place.map((p) => ({ x: PAD.left + p.depth * step, y: PAD.top + p.row * ROW }));
  const path = pathOfEpisode(tree, current);
  const [across, down] = [PAD.left + depth * step + PAD.right, PAD.top + (rows - 1) * ROW + PAD.bottom];
  const parts = tree.map((state, i) => {
    const target = state.ends.includes(current) || path.has(i) ? current : state.episode;
    const choose = (event) => {
      event.preventDefault();
      open(target);
    };
    const attributes = { class: path.has(i) ? "branch chosen" : "branch", "data-episode": target };
    const node = svg("g", attributes);
    if (state.parent >= 0) {
      fill(node, { tabindex: 0, role: "link", onclick: choose, onkeydown: (e) => e.key === "Enter" && choose(e) }, edge(group, state, at[state.parent], at[i], step));
    }
    const tone = state.ends.length ? verdict(group.episodes[state.ends[0]])[0] : "inner";
    node.append(svg("circle", { class: `state ${tone}`, cx: at[i].x, cy: at[i].y, r: 5.5 }));
    for (const mark of [leafMark(group, state, at[i].x, at[i].y), valueMark(group, state, at[i].x, at[i].y)]) if (mark) node.append(mark);
    return node;
  });
  // The chosen path is drawn last, above the others.
  const order = [...parts.keys()].sort((a, b) => path.has(a) - path.has(b));
  return svg("svg", { class: "tree", width: across, height: down, viewBox: `0 0 ${across} ${down}`, "aria-label": "tree of the episodes" }, order.map((i) => parts[i]));
}
