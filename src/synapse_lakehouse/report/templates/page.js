"use strict";
(() => {
  const published = document.getElementById("published");
  const updateAge = () => {
    const hours = (Date.now() - Date.parse(published.dateTime)) / 3600000;
    const count = hours < 1 ? Math.max(0, Math.round(hours * 60)) : hours < 48 ? Math.round(hours) : Math.round(hours / 24);
    const unit = hours < 1 ? "minute" : hours < 48 ? "hour" : "day";
    document.getElementById("age").textContent = ", " + count + " " + unit + (count === 1 ? "" : "s") + " ago";
    const limit = Number(document.querySelector(".status").dataset.overdueHours);
    document.getElementById("overdue").hidden = hours <= limit;
  };
  if (published) {
    updateAge();
    setInterval(updateAge, 60000);
  }
  const draw = async (figure) => {
    const spec = JSON.parse(document.getElementById(figure.dataset.spec).textContent);
    const width = figure.clientWidth;
    spec.config.legend.columns = Math.max(1, Math.floor(width / 270));
    spec.config.legend.labelLimit = Math.min(320, width - 40);
    spec.config.axisY = { labelLimit: 400 };
    const time = spec.encoding.x;
    if (time.type === "temporal") {
      time.axis.tickCount = Math.max(2, Math.min(8, Math.floor(width / 130)));
    }
    const bars = spec.encoding.y;
    if (bars.type === "nominal" && width < 560) {
      // The labels are above the bars, because beside them they would be cut.
      const count = new Set(spec.datasets[spec.data.name].map((row) => row[bars.field])).size;
      const bar = (spec.height - 20) / count;
      spec.height = count * (bar + 20) - 20;
      bars.scale = { paddingInner: 20 / (bar + 20), paddingOuter: 0 };
      bars.axis = {
        ...bars.axis, domain: false, ticks: false, zindex: 1, labelAlign: "left", labelBaseline: "bottom",
        labelPadding: 0, labelOffset: -bar / 2 - 3, labelLimit: width, labelFontSize: 11,
      };
      spec.padding = { top: 20, left: 5, right: 14, bottom: 5 };
    }
    try {
      await vegaEmbed(figure, spec, { renderer: "svg", actions: false, ast: true });
    } catch (error) {
      figure.textContent = "The chart could not be drawn. The table has its values.";
      console.error(error);
    }
  };
  const charts = [...document.querySelectorAll(".chart")].map(draw);
  Promise.all(charts).then(() => {
    document.documentElement.setAttribute("data-drawn", "true");
    // The drawn charts have moved the element that the address names.
    document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  });
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")].filter((item) => !item.querySelector("pre"));
    opened.forEach((item) => { item.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((item) => { item.open = false; }));
})();
