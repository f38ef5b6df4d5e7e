// Token by token: its own piece of text, whether it is trained, its log-probability and its entropy.

const SHADES = { logp: "log-probability", entropy: "entropy", none: "no colour" };
const tokenState = { on: false, shade: "logp" };
const CONTROL = new Set(DATA.pieces.control);
const tip = document.getElementById("tip");
let pinned = null;

function pieceOf(id) {
  const text = DATA.pieces.text[id];
  return text === undefined ? `⟨${id}⟩` : text;
}

// 0 to 1: how unlikely the sampled token was, or how undecided the model was (two nats are full colour).
function heat(logp, entropy) {
  if (tokenState.shade === "logp") return isNumber(logp) ? 1 - Math.exp(Math.min(0, logp)) : 0;
  if (tokenState.shade === "entropy") return isNumber(entropy) ? Math.min(1, Math.max(0, entropy) / 2) : 0;
  return 0;
}

function describe(token) {
  const rows = [
    ["token", el("span", { class: "piece" }, literal(pieceOf(token.id).replaceAll("\n", "↵").replaceAll(" ", "␣")))],
    ["id", String(token.id)],
    ["", token.trained ? "action: sampled and trained" : CONTROL.has(token.id) ? "read only: put there by the chat template" : "read only"],
  ];
  if (token.trained) {
    const p = isNumber(token.logp) ? Math.exp(token.logp) : null;
    rows.push(["log-prob", `${number(token.logp, 4)} (p ${number(p, 4)})`], ["entropy", `${number(token.entropy, 4)} nats`]);
  }
  return rows.map(([name, value]) => el("div", {}, name ? el("b", {}, name) : null, " ", value));
}

function placeTip(node) {
  const box = node.getBoundingClientRect();
  const left = Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
  const above = box.top - tip.offsetHeight - 6;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${above > 8 ? above : box.bottom + 6}px`;
}

function showTip(node, token) {
  tip.replaceChildren(...describe(token));
  tip.hidden = false;
  placeTip(node);
}

function hideTip() {
  pinned?.classList.remove("pinned");
  pinned = null;
  tip.hidden = true;
}

function pin(node, token) {
  const again = pinned === node;
  hideTip();
  if (again) return;
  pinned = node;
  node.classList.add("pinned");
  showTip(node, token);
}

function tokenNode(token) {
  const kind = token.trained ? "trained" : CONTROL.has(token.id) ? "control" : "read";
  const node = el("span", { class: `token ${kind}`, "data-id": token.id }, literal(pieceOf(token.id)));
  if (token.trained) node.style.setProperty("--heat", heat(token.logp, token.entropy).toFixed(3));
  node.addEventListener("pointerenter", () => pinned || showTip(node, token));
  node.addEventListener("pointerleave", () => pinned || hideTip());
  node.addEventListener("click", () => pin(node, token));
  return node;
}

function sampledTokens(turn) {
  return turn.tokens.map((id, i) => tokenNode({ id, trained: true, logp: turn.logp[i], entropy: turn.entropy[i] }));
}

function readTokens(ids) {
  return ids.map((id) => tokenNode({ id, trained: false }));
}

function tokenControls(redraw) {
  const shades = Object.entries(SHADES).map(([shade, label]) =>
    toggle(label, tokenState.shade === shade, () => {
      tokenState.shade = shade;
      redraw();
    }),
  );
  const flip = () => {
    tokenState.on = !tokenState.on;
    redraw();
  };
  return el(
    "div",
    { class: "chips" },
    toggle("Tokens", tokenState.on, flip),
    tokenState.on ? [el("span", { class: "note" }, "coloured by"), ...shades] : null,
    tokenState.on && DATA.pieces.missing ? el("span", { class: "note warning" }, visible(DATA.pieces.missing)) : null,
  );
}
