// A line through all pictures of the run at the time under the pointer, and what each shows there.
const run = document.getElementById("run");
const begins = run ? run.dataset.begins.split(",").map(Number) : [];
const charts = [...document.querySelectorAll("svg.time")];
for (const chart of charts) {
  chart.addEventListener("pointermove", (event) => {
    const corner = chart.getScreenCTM();
    const x = (event.clientX - corner.e) / corner.a;
    const [left, right] = run.dataset.across.split(",").map(Number);
    const second = (x - left) / (right - left) * Number(run.dataset.end);
    const after = begins.findIndex((begin) => begin > second);
    const at = Math.max(after < 0 ? begins.length - 1 : after - 1, 0);
    for (const other of charts) {
      const line = other.querySelector(".cursor");
      line.setAttribute("x1", x);
      line.setAttribute("x2", x);
      other.previousElementSibling.querySelector("output").textContent =
        `${other.dataset.shown.split("|")[at]} at ${Math.round(begins[at])} s`;
    }
  });
}
