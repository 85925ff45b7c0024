"use strict";
const replay = JSON.parse(document.getElementById("replay").textContent);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;

// Frames are whole micrometres: two points a part.
function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Int32Array(bytes.buffer);
}

// Blue near the data, red at and beyond its largest leave-one-out score.
const ramp = [[43, 131, 186], [171, 221, 164], [253, 174, 97], [215, 25, 28]];
function colourOf(share) {
  const x = Math.min(Math.max(share, 0), 1) * (ramp.length - 1);
  const i = Math.min(Math.floor(x), ramp.length - 2);
  const mix = ramp[i].map((c, k) => Math.round(c + (ramp[i + 1][k] - c) * (x - i)));
  return `rgb(${mix})`;
}

function element(name, parent, attributes = {}, text = "") {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  parent.append(made);
  return made;
}

// A canvas as sharp as the screen; answers with its size in CSS pixels.
function fit(canvas, height) {
  const width = canvas.clientWidth, scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return [pen, width, height];
}

class Track {
  constructor(data, index) {
    Object.assign(this, data);
    this.points = unpack(data.frames);
    this.count = this.points.length / (4 * replay.parts.length);
    this.ghost = data.imagined && unpack(data.imagined.frames);
    this.at = 0;
    this.playing = false;
    this.build(index);
  }

  build(index) {
    const section = element("section", document.getElementById("tracks"), { "aria-label": this.name });
    element("h2", section, {}, this.name);
    element("p", section, { class: "about" }, this.about);
    this.stage = element("canvas", section, { role: "img", "aria-label": `${this.name}: the body in motion` });
    const controls = element("div", section, { class: "controls" });
    this.button = element("button", controls, { type: "button" }, "Play");
    this.slider = element("input", controls, { type: "range", min: 0, max: this.count - 1, value: 0, "aria-label": "step" });
    this.output = element("output", controls);
    const label = element("label", controls, {}, "speed ");
    this.speed = element("select", label);
    for (const speed of ["0.1", "0.25", "0.5", "1", "2"]) element("option", this.speed, { value: speed }, `${speed}×`);
    this.speed.value = "1";
    if (this.imagined) {
      const ghost = element("label", controls, {}, "imagined ");
      this.toggle = element("input", ghost, { type: "checkbox" });
      this.toggle.checked = true;
      this.toggle.addEventListener("change", () => this.draw());
      const legend = element("p", section, { class: "legend" });
      legend.append("Filled: the simulator. Outlined: the same actions in the learnt model, started again from the real state every ",
        `${this.imagined.horizon} steps, coloured by u: near the data `);
      element("span", legend, { class: "swatch", role: "img", "aria-label": "from blue to red" });
      legend.append(" at the largest score of the data itself (ε).");
      this.charts = [
        this.chart(section, "u", this.imagined.u, this.imagined.epsilon),
        this.chart(section, "error", this.imagined.error),
        this.chart(section, "reward", this.rewards, undefined, this.imagined.rewards),
      ];
    } else this.charts = [this.chart(section, "reward", this.rewards)];
    this.values = element("p", section, { class: "values", "aria-live": "off" });
    if (index === 0) element("p", section, { class: "hint" }, "Space plays and pauses, ← and → step. Click a chart to go there.");
    this.button.addEventListener("click", () => this.play(!this.playing));
    this.slider.addEventListener("input", () => { this.play(false); this.seek(+this.slider.value); });
    section.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === " " && event.target.tagName !== "BUTTON" && event.target.type !== "checkbox") this.play(!this.playing);
      else if (move && event.target.tagName === "CANVAS") this.seek(this.at + move);
      else return;
      event.preventDefault();
    });
    this.seek(0);
  }

  chart(section, name, values, level, other) {
    const canvas = element("canvas", section, { class: "chart", tabindex: 0, role: "img", "aria-label": `${name} over steps` });
    const go = (event) => { this.play(false); this.seek(Math.round((event.offsetX / canvas.clientWidth) * (this.count - 1))); };
    canvas.addEventListener("click", go);
    canvas.addEventListener("pointermove", (event) => { if (event.buttons) go(event); });
    return { name, values, level, other, canvas };
  }

  play(on) {
    this.playing = on;
    this.button.textContent = on ? "Pause" : "Play";
    if (!on) return;
    if (this.at >= this.count - 1) this.seek(0);
    let clock = performance.now() - (this.at * replay.interval * 1000) / this.speed.value, speed = this.speed.value;
    const tick = (now) => {
      if (!this.playing) return;
      if (speed !== this.speed.value) {
        speed = this.speed.value;
        clock = now - (this.at * replay.interval * 1000) / speed;
      }
      const at = Math.floor(((now - clock) * speed) / (replay.interval * 1000));
      this.seek(at);
      if (at >= this.count - 1) this.play(false);
      else requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  seek(at) {
    this.at = Math.min(Math.max(at, 0), this.count - 1);
    this.slider.value = this.at;
    this.output.textContent = `step ${this.at} · ${(this.at * replay.interval).toFixed(2)} s`;
    const step = this.at - 1, parts = [];
    if (this.imagined) {
      parts.push(`u ${this.imagined.u[this.at].toFixed(3)} (ε ${this.imagined.epsilon.toFixed(3)})`, `error ${this.imagined.error[this.at].toFixed(3)}`);
    }
    if (step >= 0 && step < this.rewards.length) {
      parts.push(`reward ${this.rewards[step].toFixed(3)}` + (this.imagined ? `, imagined ${this.imagined.rewards[step].toFixed(3)}` : ""));
    }
    if (this.imagined && step >= 0) {
      const [episode, row] = this.imagined.nearest[this.at];
      parts.push(`nearest logged: episode ${episode}, step ${row}`);
    }
    this.values.textContent = parts.join(" · ");
    this.draw();
  }

  draw() {
    const narrow = this.stage.clientWidth < 600;
    const [pen, width, height] = fit(this.stage, narrow ? 200 : 280);
    const top = replay.view === "top";
    const metre = top ? height / 9 : height / 2.4;
    const first = this.at * 4 * replay.parts.length;
    const body = replay.parts.findIndex((part) => !part.is_box);
    const centre = [0, 1].map((i) => (this.points[first + 4 * body + i] + this.points[first + 4 * body + 2 + i]) / 2e6);
    const place = (x, y) => [width / 2 + (x - centre[0]) * metre, top ? height / 2 - (y - centre[1]) * metre : height * 0.88 - y * metre];
    pen.strokeStyle = style("--rule");
    pen.lineWidth = 1;
    if (!top) {
      const floor = place(0, 0)[1];
      pen.fillStyle = style("--ground");
      pen.fillRect(0, floor, width, height - floor);
    }
    // A tick every metre: without it nobody sees that the body moves.
    const half = width / 2 / metre;
    pen.fillStyle = style("--faint");
    pen.font = "12px system-ui, sans-serif";
    for (let x = Math.ceil(centre[0] - half); x <= centre[0] + half; x++) {
      const [px, py] = place(x, top ? centre[1] : 0);
      pen.beginPath();
      pen.moveTo(px, top ? 0 : py);
      pen.lineTo(px, top ? height : py + 8);
      pen.stroke();
      if (!top && x % (narrow ? 2 : 1) === 0) pen.fillText(`${x} m`, px + 3, py + 20);
    }
    this.outline(pen, place, metre, this.points, first, style("--body"), true);
    if (this.ghost && this.toggle.checked && this.ghost.length > first) {
      const share = this.imagined.u[this.at] / this.imagined.epsilon;
      this.outline(pen, place, metre, this.ghost, first, colourOf(share), false);
    }
    this.charts.forEach((chart) => this.plot(chart));
  }

  outline(pen, place, metre, points, first, colour, filled) {
    pen.lineCap = pen.lineJoin = "round";
    replay.parts.forEach((part, i) => {
      const at = first + 4 * i;
      const [a, b] = place(points[at] / 1e6, points[at + 1] / 1e6), [c, d] = place(points[at + 2] / 1e6, points[at + 3] / 1e6);
      const line = (wide, ink) => { pen.lineWidth = wide; pen.strokeStyle = ink; pen.beginPath(); pen.moveTo(a, b); pen.lineTo(c + 0.01, d); pen.stroke(); };
      if (part.is_box) {
        if (!filled) return;
        pen.fillStyle = style("--rule");
        pen.fillRect(Math.min(a, c), Math.min(b, d), Math.abs(c - a), Math.abs(d - b));
      } else if (filled) line(2 * part.radius * metre, colour);
      else {
        pen.globalAlpha = 0.35;
        line(2 * part.radius * metre, colour);
        pen.globalAlpha = 1;
        line(3, colour);
      }
    });
  }

  plot({ name, values, level, other, canvas }) {
    const [pen, width, height] = fit(canvas, 84);
    const all = values.concat(other || [], level === undefined ? [] : [level]);
    let low = Math.min(0, ...all), high = Math.max(...all);
    if (high === low) high = low + 1;
    const x = (i) => (i / Math.max(this.count - 1, 1)) * width;
    const y = (v) => 20 + (1 - (v - low) / (high - low)) * (height - 26);
    const line = (series, colour, dash = []) => {
      pen.strokeStyle = colour;
      pen.lineWidth = 1.5;
      pen.setLineDash(dash);
      pen.beginPath();
      const shift = series.length < this.count ? 1 : 0;
      series.forEach((v, i) => (i ? pen.lineTo(x(i + shift), y(v)) : pen.moveTo(x(shift), y(v))));
      pen.stroke();
      pen.setLineDash([]);
    };
    pen.strokeStyle = style("--rule");
    pen.beginPath();
    pen.moveTo(0, y(low));
    pen.lineTo(width, y(low));
    pen.stroke();
    if (other) line(other, "#d97a1f", [4, 3]);
    line(values, style("--body"));
    if (level !== undefined) {
      pen.strokeStyle = "#d7191c";
      pen.setLineDash([6, 4]);
      pen.beginPath();
      pen.moveTo(0, y(level));
      pen.lineTo(width, y(level));
      pen.stroke();
      pen.setLineDash([]);
    }
    pen.strokeStyle = style("--ink");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x(this.at), 18);
    pen.lineTo(x(this.at), height);
    pen.stroke();
    pen.fillStyle = style("--faint");
    pen.font = "13px system-ui, sans-serif";
    const words = { u: "u (dashed: ε)", error: "error of the model, in deviations of the data", reward: other ? "reward (dashed: imagined)" : "reward" };
    pen.fillText(`${words[name]}, ${low.toPrecision(2)} to ${high.toPrecision(3)}`, 2, 13);
  }
}

const tracks = replay.tracks.map((data, index) => new Track(data, index));
const redraw = () => tracks.forEach((track) => track.draw());
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
if (tracks.length && !reduced) tracks[0].play(true);
