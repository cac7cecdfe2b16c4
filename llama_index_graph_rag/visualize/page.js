"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const svg = document.getElementById("graph");
const said = document.getElementById("said");
const { entities, relations, roles } = data;
const order = ["expanded", "recalled", "used", "chosen"];
const strength = (relation) => order.indexOf(relation.role);
const short = (text, limit) => (text.length > limit ? text.slice(0, limit - 1) + "…" : text);
const hidden = new Set();
let view = { k: 1, x: 0, y: 0 };
let touched = false;
let picked = null;
let hovered = null;

function tag(text, kind) {
  const made = make("g", layers[3], { class: "tag " + kind });
  make("rect", made, { x: 0, y: -10, height: 13, rx: 2 });
  make("text", made).textContent = text;
  return made;
}

function make(kind, parent, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  parent.appendChild(made);
  return made;
}

// --- what is drawn, once ---------------------------------------------------------------------

const layers = ["edges", "grips", "marks", "texts"].map(() => make("g", svg));
entities.forEach((entity) => { entity.edges = []; entity.told = false; });
const between = new Map();
relations.forEach((relation) => {
  const [a, b] = [relation.source, relation.target];
  [a, b].forEach((end) => entities[end].edges.push(relation));
  if (strength(relation) >= 2) [a, b].forEach((end) => { entities[end].told = true; });
  const key = Math.min(a, b) + " " + Math.max(a, b);
  if (!between.has(key)) between.set(key, []);
  between.get(key).push(relation);
});
for (const group of between.values()) {
  group.forEach((relation, place) => {
    // Edges between the same two entities are bent apart, by the side on which they start.
    const side = relation.source <= relation.target ? 1 : -1;
    relation.bend = side * (place - (group.length - 1) / 2);
    relation.turn = place;
  });
}
[...relations].sort((a, b) => strength(a) - strength(b)).forEach((relation) => {
  relation.edge = make("path", layers[0], { class: "edge " + relation.role });
  relation.tip = make("path", layers[0], { class: "tip " + relation.role });
  relation.grip = make("path", layers[1], { class: "grip" });
  relation.label = tag(short(relation.predicate, 30), "predicate " + relation.role);
  listen(relation.grip, relation);
});
entities.forEach((entity) => {
  const kind = (entity.seed !== null ? " seed" : "") + (entity.told ? " told" : "");
  entity.size = entity.seed !== null ? 8 : entity.told ? 6.5 : 4.5;
  const r = entity.size;
  entity.mark = entity.seed !== null
    ? make("rect", layers[2], { class: "mark" + kind, x: -r, y: -r, width: 2 * r, height: 2 * r, rx: 2 })
    : make("circle", layers[2], { class: "mark" + kind, r });
  entity.label = tag(short(entity.name, 26), kind);
  listen(entity.mark, entity);
});
// Widths do not change with the view: measured once.
[...entities, ...relations].forEach((one) => {
  one.wide = one.label.textContent ? one.label.lastChild.getComputedTextLength() + 6 : 0;
  one.label.firstChild.setAttribute("x", -one.wide / 2);
  one.label.firstChild.setAttribute("width", one.wide);
});

// --- where it stands in this view ------------------------------------------------------------

const onScreen = (entity) => [entity.x * view.k + view.x, entity.y * view.k + view.y];

function curve(relation) {
  const [from, to] = [entities[relation.source], entities[relation.target]];
  const [x1, y1] = onScreen(from);
  const [x2, y2] = onScreen(to);
  const width = relation.role === "chosen" ? 10 : 8;
  if (from === to) {
    const r = 16 + 9 * relation.turn;
    const [a, b] = [[x1 - 5, y1 - from.size], [x1 + 5, y1 - from.size - 1]];
    return { path: `M${a}C${x1 - r},${y1 - 2.2 * r} ${x1 + r},${y1 - 2.2 * r} ${b}`,
      end: b, way: [-0.3, 1], width, at: () => [x1, y1 - 1.75 * r] };
  }
  const far = Math.hypot(x2 - x1, y2 - y1) || 1;
  const [u, v] = [(x2 - x1) / far, (y2 - y1) / far];
  const bend = relation.bend * Math.min(34, 12 + far / 8);
  const middle = [(x1 + x2) / 2 - v * bend, (y1 + y2) / 2 + u * bend];
  const control = [2 * middle[0] - (x1 + x2) / 2, 2 * middle[1] - (y1 + y2) / 2];
  const last = Math.hypot(x2 - control[0], y2 - control[1]) || 1;
  const way = [(x2 - control[0]) / last, (y2 - control[1]) / last];
  const stop = Math.min(to.size + 2, far / 2);
  const end = [x2 - way[0] * stop, y2 - way[1] * stop];
  const neck = [end[0] - way[0] * width * 0.7, end[1] - way[1] * width * 0.7];
  const at = (t) => [0, 1].map((i) =>
    (1 - t) ** 2 * [x1, y1][i] + 2 * t * (1 - t) * control[i] + t ** 2 * [x2, y2][i]);
  return { path: `M${x1},${y1}Q${control} ${neck}`, end, way, width, at };
}

function tip({ end, way, width }) {
  const [u, v] = way;
  const back = [end[0] - u * width, end[1] - v * width];
  const half = width * 0.45;
  return `M${end}L${back[0] - v * half},${back[1] + u * half}` +
    `L${back[0] + v * half},${back[1] - u * half}Z`;
}

const isShown = (relation) => !hidden.has(relation.role);

function draw() {
  const now = picked || hovered;
  svg.classList.toggle("picked", Boolean(now));
  for (const relation of relations) {
    const shown = isShown(relation);
    for (const part of [relation.edge, relation.tip, relation.grip]) {
      part.style.display = shown ? "" : "none";
      part.classList.toggle("on", Boolean(now && now.relations.has(relation)));
    }
    relation.label.classList.toggle("on", Boolean(now && now.relations.has(relation)));
    if (!shown) continue;
    relation.curve = curve(relation);
    relation.edge.setAttribute("d", relation.curve.path);
    relation.grip.setAttribute("d", relation.curve.path);
    relation.tip.setAttribute("d", tip(relation.curve));
  }
  for (const entity of entities) {
    entity.shown = entity.seed !== null || entity.edges.some(isShown);
    entity.mark.style.display = entity.shown ? "" : "none";
    entity.mark.setAttribute("transform", `translate(${onScreen(entity)})`);
    for (const part of [entity.mark, entity.label]) {
      part.classList.toggle("on", Boolean(now && now.entities.has(entity)));
    }
  }
  label(now);
}

// --- labels: the telling ones first, none upon another ----------------------------------------

const MUST = 80;

function weight(one, now) {
  const on = now && (now.entities.has(one) || now.relations.has(one)) ? 1000 : 0;
  if (!one.mark) return on + [10, 20, 60, 95][strength(one)];
  return on + (one.seed !== null ? 100 : one.told ? 80 : 30) + Math.min(one.edges.length, 9);
}

function beside(entity, half) {
  const [x, y] = onScreen(entity);
  const r = entity.size;
  const far = half + r / 2;
  return [[x, y + r + 12], [x, y - r - 5], [x + r + half, y + 4], [x - r - half, y + 4],
    [x + far, y + r + 10], [x - far, y + r + 10], [x + far, y - r - 3], [x - far, y - r - 3]];
}

function along(relation) {
  return [0.5, 0.42, 0.58, 0.34, 0.66].flatMap((t) => {
    const [x, y] = relation.curve.at(t);
    return [[x, y + 4], [x, y - 5], [x, y + 13]];
  });
}

function label(now) {
  const [texts, starts, big, small] = [[], [], [], []];
  entities.filter((entity) => entity.shown).forEach((entity) => {
    const [[x, y], r] = [onScreen(entity), entity.size];
    (entity.seed !== null ? starts : entity.told ? big : small).push([x - r, y - r, x + r, y + r]);
  });
  const own = svg.getBoundingClientRect();
  const [right, bottom] = [own.width, own.height];
  const apart = ([a, b, c, d]) => ([e, f, g, h]) => a >= g || c <= e || b >= h || d <= f;
  const free = (box, others) => box[0] > 0 && box[1] > 0 && box[2] < right && box[3] < bottom &&
    others.every((some) => some.every(apart(box)));
  const wanted = [...entities.filter((one) => one.shown), ...relations.filter(isShown)]
    .map((one) => [weight(one, now), one]).sort((a, b) => b[0] - a[0]);
  [...entities, ...relations].forEach((one) => { one.label.style.display = "none"; });
  for (const [first, one] of wanted) {
    if (!one.wide) continue;
    const half = one.wide / 2;
    const boxes = (one.mark ? beside(one, half) : along(one))
      .map(([x, y]) => [x - half, y - 10, x + half, y + 3]);
    // What has to be read may cover the marks of what need not, and if it must any but a start.
    const tries = [[texts, starts, big, small], [texts, starts, big], [texts, starts]];
    const box = tries.slice(0, first >= MUST ? 3 : 1)
      .reduce((found, taken) => found || boxes.find((some) => free(some, taken)), undefined);
    if (!box) continue;
    texts.push(box);
    one.label.setAttribute("transform", `translate(${box[0] + half},${box[1] + 10})`);
    one.label.style.display = "";
  }
}

// --- moving ----------------------------------------------------------------------------------

let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

function fit() {
  const own = svg.getBoundingClientRect();
  if (!entities.length) return;
  const [xs, ys] = [entities.map((one) => one.x), entities.map((one) => one.y)];
  const [left, top] = [Math.min(...xs) - 70, Math.min(...ys) - 30];
  const [wide, high] = [Math.max(...xs) + 70 - left, Math.max(...ys) + 40 - top];
  const k = Math.min(own.width / wide, own.height / high, 1.6);
  touched = false;
  view = { k, x: (own.width - wide * k) / 2 - left * k, y: (own.height - high * k) / 2 - top * k };
  redraw();
}

function zoom(factor, x, y) {
  const k = Math.min(6, Math.max(0.05, view.k * factor));
  touched = true;
  const own = svg.getBoundingClientRect();
  const [at, on] = [x === undefined ? own.width / 2 : x, y === undefined ? own.height / 2 : y];
  view = { k, x: at - ((at - view.x) * k) / view.k, y: on - ((on - view.y) * k) / view.k };
  redraw();
}

svg.addEventListener("wheel", (event) => {
  event.preventDefault();
  const own = svg.getBoundingClientRect();
  const step = event.deltaMode === 1 ? 16 : 1;
  zoom(Math.exp(-event.deltaY * step * 0.002), event.clientX - own.left, event.clientY - own.top);
}, { passive: false });
let dragged = null;
let moved = false;
svg.addEventListener("pointerdown", (event) => {
  dragged = [event.clientX, event.clientY];
  moved = false;
});
window.addEventListener("pointermove", (event) => {
  if (!dragged) return;
  const [dx, dy] = [event.clientX - dragged[0], event.clientY - dragged[1]];
  if (!moved && Math.hypot(dx, dy) < 4) return;
  moved = touched = true;
  view = { k: view.k, x: view.x + dx, y: view.y + dy };
  dragged = [event.clientX, event.clientY];
  redraw();
});
for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, () => { dragged = null; });
svg.addEventListener("click", () => { if (!moved) pick(null); });
document.getElementById("in").addEventListener("click", () => zoom(1.4));
document.getElementById("out").addEventListener("click", () => zoom(1 / 1.4));
document.getElementById("fit").addEventListener("click", fit);
window.addEventListener("resize", () => { if (touched) redraw(); else fit(); });
window.addEventListener("keydown", (event) => { if (event.key === "Escape") pick(null); });

// --- pointing at things ----------------------------------------------------------------------

function around(one) {
  const found = one.mark ? one.edges.filter(isShown) : [one];
  return group(found, one.mark ? [one] : []);
}

function group(found, more) {
  const ends = found.flatMap((relation) => [entities[relation.source], entities[relation.target]]);
  return { relations: new Set(found), entities: new Set([...ends, ...more]) };
}

function describe(one) {
  if (one.mark) {
    const n = one.edges.length;
    const seed = one.seed !== null ? `, a start of the search (${one.seed})` : "";
    return `${one.name}${seed}: ${n} relation${n === 1 ? "" : "s"} here`;
  }
  const parts = [roles[one.role]];
  if (one.degree !== null) parts.push(`degree ${one.degree}`);
  if (one.similarity !== null) parts.push(`similarity ${one.similarity}`);
  const predicate = one.predicate || "(predicate not fetched)";
  return `${entities[one.source].name} — ${predicate} → ${entities[one.target].name} (${parts.join(", ")})`;
}

function listen(part, one) {
  part.addEventListener("pointerenter", () => {
    said.textContent = describe(one);
    if (!picked && !dragged) { hovered = around(one); redraw(); }
  });
  part.addEventListener("pointerleave", () => {
    said.textContent = "";
    hovered = null;
    redraw();
  });
  part.addEventListener("click", (event) => {
    if (moved) return;
    event.stopPropagation();
    pick(around(one));
  });
}

function pick(what, article) {
  picked = what;
  hovered = null;
  document.querySelectorAll("article").forEach((one) => one.classList.toggle("on", one === article));
  redraw();
}

const byId = new Map(relations.map((relation) => [relation.id, relation]));
const known = (ids) => ids.map((id) => byId.get(id)).filter(Boolean);
document.querySelectorAll("article").forEach((article) => {
  const found = known(article.dataset.ids.split(" "));
  const toggle = () => pick(article.classList.contains("on") || !found.length ? null : group(found, []),
    article.classList.contains("on") ? null : article);
  article.addEventListener("click", (event) => { if (!event.target.closest("summary")) toggle(); });
  article.addEventListener("keydown", (event) => {
    if (event.target === article && event.key === "Enter") toggle();
  });
  article.querySelectorAll("button").forEach((button) => {
    const [relation] = known([button.dataset.id]);
    if (relation) button.classList.add(relation.role);
    button.addEventListener("click", (event) => {
      event.stopPropagation();
      if (relation) { pick(group([relation], []), article); said.textContent = describe(relation); }
    });
  });
});

// --- the legend ------------------------------------------------------------------------------

const legend = document.getElementById("legend");
function entry(text, parent) {
  const icon = make("svg", parent, { viewBox: "0 0 34 12" });
  parent.append(text);
  return icon;
}
if (entities.some((entity) => entity.seed !== null)) {
  const line = legend.appendChild(document.createElement("div"));
  make("rect", entry("start: an entity of the question", line),
    { class: "mark seed", x: 12, y: 1, width: 10, height: 10, rx: 2 });
}
for (const [role, text] of Object.entries(roles)) {
  const line = legend.appendChild(document.createElement("label"));
  const count = relations.filter((relation) => relation.role === role).length;
  const icon = entry(`${text} (${count})`, line);
  make("path", icon, { class: "edge " + role, d: "M0,6H26" });
  make("path", icon, { class: "tip " + role, d: "M34,6L25,2V10Z" });
  const box = document.createElement("input");
  box.type = "checkbox";
  box.checked = true;
  box.addEventListener("change", () => { hidden[box.checked ? "delete" : "add"](role); redraw(); });
  line.prepend(box);
}

fit();
draw();
