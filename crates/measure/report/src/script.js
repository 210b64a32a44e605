// Shows what the nearest mark of a chart says, beside the pointer. Without this the browser's own tooltips do, slowly.
// A click enlarges a chart on a narrow screen (style.css).
(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  for (const chart of document.querySelectorAll("svg.chart")) {
    const marks = [...chart.querySelectorAll(".mark")].map((mark) => {
      const title = mark.querySelector("title");
      const says = title.textContent;
      title.remove();
      mark.setAttribute("aria-label", says);
      return { mark, says };
    });
    chart.addEventListener("pointermove", (event) => {
      let nearest = null;
      let least = 40 * 40;
      for (const { mark, says } of marks) {
        const box = mark.getBoundingClientRect();
        const dx = Math.max(box.left - event.clientX, 0, event.clientX - box.right);
        const dy = Math.max(box.top - event.clientY, 0, event.clientY - box.bottom);
        const away = dx * dx + dy * dy;
        if (away < least) {
          least = away;
          nearest = says;
        }
      }
      tip.hidden = nearest === null;
      if (nearest === null) return;
      tip.textContent = nearest;
      const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
      tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, room)) + window.scrollX}px`;
      tip.style.top = `${event.clientY + 16 + window.scrollY}px`;
    });
    chart.addEventListener("click", () => chart.closest(".scroll")?.classList.toggle("enlarged"));
    chart.addEventListener("pointerleave", () => {
      tip.hidden = true;
    });
  }
})();
