// Looks at a report as it is laid out, and leaves what is wrong with it in an element of its own, as JSON.
addEventListener("load", () => {
  const wrong = [];
  const charts = [...document.querySelectorAll("svg.chart")];
  const say = (chart, what) => wrong.push(`${chart.getAttribute("aria-label")}: ${what}`);
  // Rounding moves an edge by less than this.
  const SLACK = 1;
  const inside = (box, frame) =>
    box.left >= frame.left - SLACK && box.right <= frame.right + SLACK &&
    box.top >= frame.top - SLACK && box.bottom <= frame.bottom + SLACK;
  const touch = (one, other) =>
    Math.min(one.right, other.right) - Math.max(one.left, other.left) > SLACK &&
    Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > SLACK;

  for (const chart of charts) {
    const frame = chart.getBoundingClientRect();
    const texts = [...chart.querySelectorAll("text")].map((text) => ({
      says: text.textContent,
      // The ink of a line is a good deal lower than its box.
      box: shrunk(text.getBoundingClientRect()),
    }));
    for (const { says, box } of texts) {
      if (!inside(box, frame)) say(chart, `"${says}" leaves the frame`);
    }
    for (const path of chart.querySelectorAll("path, rect")) {
      if (!inside(path.getBoundingClientRect(), frame)) say(chart, `a ${path.getAttribute("class")} leaves the frame`);
    }
    texts.forEach((one, index) => {
      for (const other of texts.slice(index + 1)) {
        if (touch(one.box, other.box)) say(chart, `"${one.says}" touches "${other.says}"`);
      }
    });
    // Whoever reads an axis has to know of what it is.
    const titles = chart.querySelectorAll("text.title").length;
    const isBars = chart.querySelector(".bar") !== null;
    if (titles < (isBars ? 1 : 2)) say(chart, "an axis has no title");
    const scroll = chart.closest(".scroll");
    if (scroll.scrollWidth > scroll.clientWidth + SLACK) say(chart, "is cut at the right");
  }

  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) wrong.push(`the page is wider than the window: ${page.scrollWidth}`);
  const cut = [...document.querySelectorAll(".scroll")].filter((box) => box.scrollWidth > box.clientWidth + SLACK);

  // The name of a row stays whole, but for names that no telephone has room for.
  for (const text of [...document.querySelectorAll("td:first-child:not(.n)")].map((cell) => cell.firstChild)) {
    for (const word of text?.textContent.matchAll(/\p{L}{1,16}/gu) ?? []) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      if (range.getClientRects().length > 1) wrong.push(`"${word[0]}" is broken`);
    }
  }

  const paper = parsed(getComputedStyle(document.body).backgroundColor);
  const faint = [...document.querySelectorAll(".chart text, td, th, p, h1, h2, li, .note, .what, .value")]
    .map((element) => {
      const style = getComputedStyle(element);
      return { says: element.textContent, ink: element instanceof SVGElement ? style.fill : style.color };
    })
    .filter(({ ink }) => contrast(parsed(ink), paper) < 4.5);
  for (const { says, ink } of faint.slice(0, 5)) wrong.push(`"${says}" is hard to read: ${ink}`);
  // A number in a square stands on that square's shade.
  for (const square of document.querySelectorAll(".chart .heat")) {
    const mark = getComputedStyle(square.querySelector(".mark"));
    const share = Number(mark.fillOpacity);
    const shade = parsed(mark.fill).map((colour, index) => share * colour + (1 - share) * paper[index]);
    const text = square.querySelector("text");
    if (contrast(parsed(getComputedStyle(text).fill), shade) < 4.5) wrong.push(`"${text.textContent}" is hard to read on its square`);
  }

  const seen = document.createElement("pre");
  seen.id = "seen";
  seen.textContent = JSON.stringify({
    charts: charts.length,
    texts: document.querySelectorAll(".chart text").length,
    wrong,
    cut: cut.length,
    paper,
    tip: pointed(),
  });
  document.body.append(seen);

  function shrunk({ left, right, top, bottom }) {
    const part = (bottom - top) * 0.15;
    return { left, right, top: top + part, bottom: bottom - part };
  }
  function parsed(colour) {
    return colour.match(/[\d.]+/g).slice(0, 3).map(Number);
  }
  // WCAG 2.2, relative luminance and contrast ratio.
  function luminance(rgb) {
    const linear = rgb.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  }
  function contrast(one, other) {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }
  // What is shown when the first mark is pointed at.
  function pointed() {
    const mark = document.querySelector("svg.chart .mark");
    if (mark === null) return null;
    const box = mark.getBoundingClientRect();
    const at = { clientX: (box.left + box.right) / 2, clientY: (box.top + box.bottom) / 2, bubbles: true };
    mark.dispatchEvent(new PointerEvent("pointermove", at));
    const tip = document.querySelector("#tip");
    return tip === null || tip.hidden ? null : tip.textContent;
  }
});
