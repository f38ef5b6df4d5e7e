// Building elements. Text of a run reaches the screen through here only, always as text nodes.

const DATA = JSON.parse(document.getElementById("data").textContent);

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

// Characters that show nothing, or change how their neighbours are shown: control, zero-width, bidirectional, tags.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\uddef]/g;

function codeName(character) {
  return "⟨U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩";
}

// One line of text with everything hidden written out.
function visible(text) {
  return text.replace(HIDDEN, codeName);
}

// The same with line breaks kept and the written-out characters marked: nodes to append.
function literal(text) {
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (found.index > from) nodes.push(text.slice(from, found.index));
    nodes.push(el("span", { class: "hidden-character", title: "a character that would not be seen" }, codeName(found[0])));
    from = found.index + found[0].length;
  }
  if (from < text.length) nodes.push(text.slice(from));
  return nodes;
}

const isNumber = (value) => typeof value === "number";

// A number for people; "–" where none was recorded.
function number(value, digits = 2) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.5 * 10 ** -digits || size >= 1e7)) return value.toExponential(1).replace(/-/g, "−");
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−");
}

// The same with its sign, for what has a direction.
function signed(value, digits = 2) {
  return isNumber(value) && value > 0 ? "+" + number(value, digits) : number(value, digits);
}

// As many digits as the number's own size asks for.
function short(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return value.toLocaleString("en").replace("-", "−");
  return number(value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : size >= 0.001 ? 4 : 6);
}

// The width that is left inside an element's padding.
function room(node) {
  const style = getComputedStyle(node);
  return node.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
}

function sign(value) {
  if (!isNumber(value) || value === 0) return "none";
  return value > 0 ? "good" : "bad";
}
