// Bodies in motion: the simulator's, the data's, and the one that the model imagines, with its charts in step.
"use strict";

// Frames are whole micrometres, two points for each part, as base64 of 32-bit integers.
function unpack(text) {
  return new Int32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
}

// From blue, as near as the data are to each other, to red, as far as its loneliest row.
const RAMP = [[43, 131, 186], [122, 198, 158], [253, 190, 90], [215, 38, 30]];
function rampColour(share) {
  const x = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1), i = Math.min(Math.floor(x), RAMP.length - 2);
  return `rgb(${RAMP[i].map((c, k) => Math.round(c + (RAMP[i + 1][k] - c) * (x - i)))})`;
}

class Scene {
  constructor(replay, track, host) {
    Object.assign(this, { replay, track });
    this.parts = replay.data.parts;
    this.width = 4 * this.parts.length;
    this.points = unpack(track.frames);
    this.count = this.points.length / this.width;
    this.ghost = track.imagined && unpack(track.imagined.frames);
    this.canvas = html("canvas", { role: "img", "aria-label": `${track.name}: the body in motion` });
    this.badge = html("div", { class: "badge", hidden: "" });
    const words = html("div", { class: "words" }, html("b", {}, track.name), html("span", {}, track.about));
    this.box = html("div", { class: "scene" }, this.canvas, words, this.badge);
    host.append(this.box);
  }

  // u at a step as a share of the way from the data's usual score to its largest.
  share(at) {
    const { u, usual, epsilon } = this.track.imagined;
    return (u[at] - usual) / Math.max(epsilon - usual, 1e-9);
  }

  // The points of a frame, between two frames where the time lies between them.
  frame(points, time) {
    const last = points.length / this.width - 1, at = Math.min(Math.floor(time), last), share = at < last ? time - at : 0;
    const now = points.subarray(at * this.width, (at + 1) * this.width);
    const place = Array.from(now, (v) => v / 1e6);
    if (share > 0) {
      const next = points.subarray((at + 1) * this.width, (at + 2) * this.width);
      for (let i = 0; i < place.length; i++) place[i] += (next[i] / 1e6 - place[i]) * share;
    }
    return place;
  }
  torso(points, at) {
    const first = at * this.width;
    return [0, 1].map((i) => (points[first + i] + points[first + 2 + i]) / 2e6);
  }

  draw(time, colours) {
    const { canvas, replay } = this, top = replay.data.view === "top", scale = devicePixelRatio || 1;
    const width = this.box.clientWidth, height = this.box.clientHeight;
    if (!width || !height) return;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    // A short episode of the data begins again beside a long one.
    if (this.track.repeat) time %= this.count;
    const at = Math.min(Math.floor(time), this.count - 1), body = this.frame(this.points, Math.min(time, this.count - 1));
    const camera = this.camera(body, width, height, top);
    const { place, metre } = camera;
    this.ground(pen, camera, width, height, top, colours);
    this.trail(pen, place, at, colours);
    this.capsules(pen, place, metre, body, colours.body, colours.paper);
    if (this.ghost && replay.ghost.checked && at > 0 && at < this.count) this.outline(pen, place, metre, time, at, scale);
    this.badge.hidden = !this.track.repeat && (time < this.count - 1 || this.count >= replay.count);
    this.badge.textContent = this.track.repeat ? `step ${at} of ${this.count - 1}` : `ended at step ${this.count - 1}`;
  }

  // Follows the body; a scene with walls is shown whole.
  camera(body, width, height, top) {
    const walls = this.replay.data.scenery;
    if (walls.length) {
      const xs = walls.flatMap((w) => [w[0], w[2]]), ys = walls.flatMap((w) => [w[1], w[3]]);
      const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
      const metre = Math.min(width / (x1 - x0), (height - 40) / (y1 - y0)) * 0.97;
      return { metre, place: (x, y) => [width / 2 + (x - (x0 + x1) / 2) * metre, height / 2 + 18 - (y - (y0 + y1) / 2) * metre] };
    }
    const centre = [(body[0] + body[2]) / 2, (body[1] + body[3]) / 2];
    const metre = top ? height / 5.5 : height / 2.35;
    return { metre, centre, place: (x, y) => [width / 2 + (x - centre[0]) * metre, top ? height / 2 - (y - centre[1]) * metre : height * 0.9 - y * metre] };
  }

  ground(pen, { place, metre, centre }, width, height, top, colours) {
    pen.lineWidth = 1;
    for (const [a, b, c, d] of this.replay.data.scenery) {
      const [x, y] = place(Math.min(a, c), Math.max(b, d));
      pen.fillStyle = colours.wall;
      pen.fillRect(x, y, Math.abs(c - a) * metre + 0.5, Math.abs(d - b) * metre + 0.5);
    }
    if (!centre) return;
    // Lines every metre: without them nobody sees that the body moves.
    const half = width / 2 / metre, tall = height / 2 / metre, floor = top ? height : place(0, 0)[1];
    pen.strokeStyle = colours.rule;
    pen.beginPath();
    for (let x = Math.ceil(centre[0] - half); x <= centre[0] + half; x++) { pen.moveTo(place(x, 0)[0], 0); pen.lineTo(place(x, 0)[0], floor); }
    if (top) for (let y = Math.ceil(centre[1] - tall); y <= centre[1] + tall; y++) { pen.moveTo(0, place(0, y)[1]); pen.lineTo(width, place(0, y)[1]); }
    pen.stroke();
    pen.fillStyle = colours.faint;
    pen.font = "11px system-ui, sans-serif";
    const every = metre < 70 ? 2 : 1;
    if (!top) {
      pen.fillStyle = colours.ground;
      pen.fillRect(0, floor, width, height - floor);
      pen.fillStyle = colours.faint;
    }
    for (let x = Math.ceil(centre[0] - half); x <= centre[0] + half; x++) {
      if (x % every === 0) pen.fillText(`${x} m`.replace("-", "−"), place(x, 0)[0] + 4, Math.min(floor + 15, height - 6));
    }
  }

  // Where the torso was in the last steps: grey in the simulator, in the colour of u as the model imagined it.
  trail(pen, place, at, colours) {
    const first = Math.max(0, at - 120);
    pen.lineCap = "round";
    pen.lineWidth = 2;
    pen.strokeStyle = colours.faint;
    pen.globalAlpha = 0.5;
    pen.beginPath();
    for (let i = first; i <= at; i++) pen[i === first ? "moveTo" : "lineTo"](...place(...this.torso(this.points, i)));
    pen.stroke();
    pen.globalAlpha = 1;
    if (!this.ghost || !this.replay.ghost.checked) return;
    const { horizon } = this.track.imagined, shown = Math.min(at, this.ghost.length / this.width - 1);
    for (let i = first + 1; i <= shown; i++) {
      // A new start from the real state is no movement.
      if ((i - 1) % horizon === 0) continue;
      pen.strokeStyle = rampColour(this.share(i));
      pen.beginPath();
      pen.moveTo(...place(...this.torso(this.ghost, i - 1)));
      pen.lineTo(...place(...this.torso(this.ghost, i)));
      pen.stroke();
    }
  }

  capsules(pen, place, metre, points, colour, rim) {
    pen.lineCap = pen.lineJoin = "round";
    this.parts.forEach((part, i) => {
      const [a, b, c, d] = points.slice(4 * i, 4 * i + 4), from = place(a, b), to = place(c, d);
      const wide = Math.max(2 * part.radius * metre, 2);
      const line = (width, ink) => {
        pen.lineWidth = width;
        pen.strokeStyle = ink;
        pen.beginPath();
        pen.moveTo(...from);
        pen.lineTo(to[0] + 0.01, to[1]);
        pen.stroke();
      };
      // A rim keeps limbs apart that cross.
      if (rim) line(wide + 2.5, rim);
      line(wide, colour);
    });
  }

  // The imagined body: its outline alone, so that the real one shows through.
  outline(pen, place, metre, time, at, scale) {
    const layer = (this.layer ??= document.createElement("canvas")), colour = rampColour(this.share(at));
    layer.width = this.canvas.width;
    layer.height = this.canvas.height;
    const ink = layer.getContext("2d");
    ink.setTransform(scale, 0, 0, scale, 0, 0);
    const { horizon } = this.track.imagined;
    const body = this.frame(this.ghost, at % horizon === 0 ? at : Math.min(time, this.ghost.length / this.width - 1));
    this.capsules(ink, (x, y) => place(x, y), metre, body, colour);
    ink.globalCompositeOperation = "destination-out";
    ink.globalAlpha = 0.82;
    const inner = this.parts.map((part) => ({ radius: Math.max(part.radius - 2.6 / metre, 0.6 / metre) }));
    const whole = this.parts;
    this.parts = inner;
    this.capsules(ink, place, metre, body, "#000");
    this.parts = whole;
    pen.save();
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.shadowColor = colour;
    pen.shadowBlur = 10 * scale;
    pen.drawImage(layer, 0, 0);
    pen.restore();
  }
}

class Replay {
  constructor(host, data) {
    Object.assign(this, { host, data, at: 0, playing: false });
    this.ghost = html("input", { type: "checkbox", checked: "" });
    const scenes = html("div", { class: "scenes" });
    host.append(scenes);
    this.scenes = data.tracks.map((track) => new Scene(this, track, scenes));
    this.count = Math.max(...this.scenes.map((s) => s.count));
    this.lead = this.scenes.find((s) => s.ghost) ?? this.scenes[0];
    if (this.scenes.length === 3 && this.lead.ghost && data.view === "side") scenes.classList.add("lead");
    this.scenes.forEach((scene, i) => { scene.box.style.height = this.height(i, scenes); });
    this.controls();
    this.charts();
    addEventListener("repaint", () => this.paint());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
    new ResizeObserver(() => { this.scenes.forEach((scene, i) => { scene.box.style.height = this.height(i, scenes); }); this.draw(); }).observe(scenes);
    this.paint();
    this.seek(0);
  }

  height(i, scenes) {
    const narrow = scenes.clientWidth < 560, top = this.data.view === "top";
    if (top) return narrow ? "300px" : this.scenes.length === 1 ? "460px" : "400px";
    if (scenes.classList.contains("lead") && innerWidth >= 820) return i === 0 ? "431px" : "210px";
    return narrow ? "210px" : this.scenes.length === 1 ? "340px" : "270px";
  }

  controls() {
    this.button = html("button", { type: "button", class: "play" }, "Play");
    this.slider = html("input", { type: "range", min: 0, max: this.count - 1, value: 0, "aria-label": "step" });
    this.output = html("output", {}, "");
    this.speed = html("select", { "aria-label": "speed" }, ...["0.1", "0.25", "0.5", "1", "2"].map((s) => html("option", { value: s }, `${s}×`)));
    this.speed.value = this.data.interval < 0.01 ? "0.5" : "1";
    const bar = html("div", { class: "controls" }, this.button, this.slider, this.output, this.speed);
    if (this.lead.ghost) bar.append(html("label", {}, this.ghost, " imagined"));
    this.host.append(bar);
    this.button.addEventListener("click", () => this.play(!this.playing));
    this.slider.addEventListener("input", () => { this.play(false); this.seek(+this.slider.value); });
    this.ghost.addEventListener("change", () => this.draw());
    this.host.addEventListener("keydown", (event) => {
      const typed = event.target.closest("button, select, input[type=checkbox], summary");
      const step = { ",": -1, ".": 1 }[event.key];
      if (event.key === " " && !typed) this.play(!this.playing);
      else if (step) { this.play(false); this.seek(Math.round(this.at) + step); }
      else return;
      event.preventDefault();
    });
  }

  charts() {
    const { imagined, rewards } = this.lead.track, steps = rewards.map((_, i) => i + 1), below = html("div", { class: "stack" });
    const pick = (x) => { this.play(false); this.seek(x); this.near(x); };
    const line = (name, slot, x, y, mark = "line") => ({ name, slot, mark, x, y });
    const add = (title, series, marks) => {
      const figure = html("figure", {});
      below.append(figure);
      return new Chart(figure, { title, x: { label: "step" }, y: { label: title }, series, marks }, { compact: true, pick });
    };
    this.host.append(below);
    if (!imagined) {
      const series = this.scenes.map((s, i) => line(this.scenes.length > 1 ? s.track.name : "", i === 0 ? 0 : i, s.track.rewards.map((_, k) => k + 1), s.track.rewards));
      this.plots = [add("reward", series)];
      return;
    }
    const ramp = `background:linear-gradient(90deg, ${RAMP.map((c) => `rgb(${c})`).join(", ")})`;
    const legend = html("p", { class: "note" }, "Solid: the simulator. Outline: the same actions in the learnt model, which starts again from the real state every ",
      `${imagined.horizon} steps. Its colour is u: like the data`, html("span", { class: "ramp", style: ramp, role: "img", "aria-label": "from blue to red" }), "as far as the data's farthest row (ε). Click a chart for the logged rows behind a step.");
    below.before(legend);
    const marks = steps.filter((s) => s % imagined.horizon === 1 && s > 1).map((s) => s - 1), last = steps.length;
    this.plots = [
      add("u: distance of the imagined step from the data", [line("u", 0, steps, imagined.u.slice(1)), line("ε", 6, [0, last], [imagined.epsilon, imagined.epsilon], "dashed")], marks),
      add("error: imagined against real state, in standard deviations of the data", [line("error", 1, steps, imagined.error.slice(1))], marks),
      add("reward", [line("in the simulator", 4, steps, rewards), line("imagined", 3, steps, imagined.rewards)], marks),
    ];
    this.panel = html("div", { class: "near", "aria-live": "polite" });
    below.append(this.panel);
    this.near(1);
  }

  near(step) {
    if (!this.panel) return;
    const { nearest, u, error } = this.lead.track.imagined;
    const rows = (nearest[step] ?? []).map(([episode, row, distance]) => html("li", {}, `episode ${episode}, step ${row}`, html("span", { class: "faint" }, ` · distance ${number(distance)}`)));
    const text = step > 0 ? `Step ${step}: u ${number(u[step])}, error ${number(error[step])}. Nearest logged rows:` : "Step 0: nothing is imagined yet.";
    this.panel.replaceChildren(text, html("ol", {}, ...rows));
  }

  paint() {
    const style = getComputedStyle(document.documentElement);
    this.colours = Object.fromEntries(["ink", "paper", "rule", "faint", "ground", "wall", "body"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.draw();
  }

  play(on) {
    if (on === this.playing) return;
    this.playing = on;
    this.button.textContent = on ? "Pause" : "Play";
    if (!on) {
      this.seek(Math.floor(this.at));
      this.near(Math.min(this.at, this.lead.count - 1));
      return;
    }
    if (this.at >= this.count - 1) this.at = 0;
    let before = performance.now();
    const tick = (now) => {
      if (!this.playing) return;
      this.at += ((now - before) / 1000 / this.data.interval) * this.speed.value;
      before = now;
      if (this.at >= this.count - 1) { this.at = this.count - 1; this.play(false); return; }
      this.show();
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  seek(at) {
    this.at = Math.min(Math.max(at, 0), this.count - 1);
    this.show();
  }

  show() {
    const at = Math.floor(this.at), shown = Math.min(at, this.lead.count - 1);
    this.slider.value = at;
    this.output.textContent = `step ${at} · ${(at * this.data.interval).toFixed(2)} s`;
    this.plots.forEach((plot) => plot.follow(shown));
    this.draw();
  }

  draw() { if (this.colours) this.scenes.forEach((scene) => scene.draw(this.at, this.colours)); }
}

function beginReplays() {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  document.querySelectorAll(".replay").forEach((host) => {
    const replay = new Replay(host, JSON.parse(host.querySelector("script").textContent));
    // A link can lead to a step: replay.html#step=120.
    const step = /#step=(\d+)/.exec(location.hash);
    if (step) { replay.seek(+step[1]); replay.near(Math.min(replay.at, replay.lead.count - 1)); return; }
    // In a report the reader starts it; alone on a page it is what the reader came for.
    if (host.dataset.autoplay !== undefined && !still) replay.play(true);
  });
}
