// One episode: its tree, what it was asked, and its turns.

function fact(name, value, tone = "") {
  return el("span", { class: `fact ${tone}` }, el("b", {}, name), " ", value);
}

function block(kind, label, content) {
  return el("div", { class: `block ${kind}` }, el("span", { class: "label" }, label), el("div", { class: "text" }, content));
}

// The truth of a state, and of the one after it.
function truth(before, after) {
  const told = ({ played, played_error: error }) => number(played) + (error ? ` ± ${number(error)}` : "");
  const from = isNumber(before.oracle) && isNumber(after.oracle);
  return [
    from ? fact("oracle", `${number(before.oracle)} → ${number(after.oracle)}`, sign(after.oracle - before.oracle)) : null,
    isNumber(before.played) ? fact("played on", `${told(before)} → ${told(after)}`) : null,
    isNumber(after.progress) ? fact("progress", signed(after.progress), sign(after.progress)) : null,
  ];
}

// Who valued the state and credited the action, where there were several.
function credits(turn) {
  return Object.keys(turn.advantages).map((name) => {
    const { [name]: value } = turn.values;
    const advantage = turn.advantages[name];
    const told = [isNumber(value) ? `V ${number(value)}` : null, `advantage ${signed(advantage)}`];
    return fact(visible(name), told.filter(Boolean).join(", "), sign(advantage));
  });
}

function turnNode(turn, number_, before) {
  const scorers = credits(turn);
  const facts = [
    fact("reward", number(turn.reward), sign(turn.reward)),
    scorers.length ? null : [
      isNumber(turn.value) ? fact("V", number(turn.value)) : null,
      isNumber(turn.advantage) ? fact("advantage", signed(turn.advantage), sign(turn.advantage)) : null,
    ],
    fact("tokens", String(turn.tokens.length)),
    isNumber(turn.version) && turn.version >= 0 ? fact("policy version", String(turn.version)) : null,
    turn.terminated ? fact("terminated", "") : null,
    turn.truncated ? fact("truncated", "") : null,
  ];
  const known = [truth(before, turn), scorers].flat().filter(Boolean);
  const on = tokenState.on;
  const seen = on ? readTokens(turn.observation_tokens) : literal(turn.observation);
  const nothing = turn.terminated || turn.truncated ? "the episode ends" : "nothing";
  return el(
    "li",
    { class: "turn", id: `turn-${number_}` },
    el("div", { class: "turn-head" }, el("h3", {}, `Turn ${number_ + 1}`), facts),
    known.length ? el("div", { class: "turn-truth" }, known) : null,
    block("trained", "action · trained", on ? sampledTokens(turn) : literal(turn.action)),
    block("read", "observation · read only", seen.length ? seen : el("i", {}, nothing)),
  );
}

function promptNode(episode) {
  if (tokenState.on) return block("read", "prompt · read only", readTokens(episode.prompt_tokens));
  return el(
    "div",
    {},
    el("details", { class: "system" }, el("summary", {}, "System prompt · read only"), block("read", "", literal(episode.system))),
    block("read", "task · read only", literal(episode.user)),
  );
}

function endNode(episode) {
  const [tone, mark, word] = verdict(episode);
  const metrics = Object.entries(episode.metrics).map(([name, value]) => fact(visible(name), short(value)));
  return el(
    "div",
    { class: "end" },
    fact(`${mark} ${word}`, "", tone),
    fact("total reward", number(episode.reward)),
    isNumber(episode.end_value) ? fact("V of the last state", number(episode.end_value)) : null,
    metrics,
  );
}

function faultNode(episode) {
  const rows = ["kind", "stage", "message"].map((key) => [el("dt", {}, key), el("dd", {}, literal(String(episode.fault?.[key] ?? "–")))]);
  return el("div", { class: "fault-box" }, el("p", {}, "The environment broke this episode. It was not trained on; nothing of it is recorded but this:"), el("dl", {}, rows));
}

function treeCaption(group) {
  const played = group.episodes.filter((episode) => episode.turns).length;
  const broken = group.episodes.length - played;
  const actions = group.tree.length - 1;
  const first = played === 1 ? "One episode: a chain of " : `${played} episodes of this task, merged where they are the same: `;
  const values = group.tree.some((state) => isNumber(valueOf(group, state))) ? " Under a state hangs its value V." : "";
  const colours = group.episodes.some((e) => e.turns?.some((t) => isNumber(t.advantage))) ? " Colour is the advantage A." : " No advantages are recorded.";
  const faults = broken ? ` ${broken} more ${broken === 1 ? "was" : "were"} broken by the environment.` : "";
  return `${first}${group.tree.length} states, ${actions} actions.${colours}${values}${faults}`;
}

function treeFigure(group, row, width, go) {
  const box = el("div", { class: "tree-box", tabindex: 0, role: "group", "aria-label": "tree, scrollable" });
  box.append(drawTree(group, row.place, width, (place) => go(ROWS.find((r) => r.group === group && r.place === place))));
  return el("figure", { class: "tree-figure" }, el("figcaption", {}, treeCaption(group)), box);
}

function drawEpisode(page, row, { go, back, step }) {
  const { episode, group } = row;
  const redraw = () => {
    hideTip();
    page.replaceChildren();
    drawEpisode(page, row, { go, back, step });
  };
  const [tone, mark, word] = verdict(episode);
  const about = [`update ${episode.update}`, `sample ${episode.sample}`, episode.attempt ? `attempt ${episode.attempt}` : null, visible(episode.language), episode.level ? `level ${episode.level}` : null];
  page.append(
    el(
      "div",
      { class: "episode-head" },
      el("button", { type: "button", class: "back", onclick: back }, "‹ All episodes"),
      el("span", { class: "spacer" }),
      el("button", { type: "button", title: "previous episode (k or ←)", onclick: () => step(-1) }, "‹ Previous"),
      el("button", { type: "button", title: "next episode (j or →)", onclick: () => step(1) }, "Next ›"),
    ),
    el("h2", { class: "task-id" }, visible(taskOf(episode)), " ", el("span", { class: `verdict ${tone}` }, `${mark} ${word}`)),
    el("p", { class: "about" }, about.filter(Boolean).join(" · ")),
  );
  if (episode.turns === null) {
    page.append(faultNode(episode));
    if (group.tree[0].count) page.append(treeFigure(group, row, room(page) - 2, go));
    return;
  }
  page.append(treeFigure(group, row, room(page) - 2, go), tokenControls(redraw), promptNode(episode));
  if (!episode.turns.length) page.append(el("p", { class: "empty" }, "No turn was played: the task did not fit into the token limit."));
  page.append(el("ol", { class: "turns" }, episode.turns.map((turn, i) => turnNode(turn, i, i ? episode.turns[i - 1] : episode))), endNode(episode));
}
