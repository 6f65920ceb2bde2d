{
  // a row has the indices of its texts, and that of its run, which is the addresses of its page and file
  const { columns, texts, rows, runs } = window.crossbenchRows;
  const STEP = 200;
  const form = document.getElementById("filters");
  const body = document.getElementById("rows");
  const more = document.getElementById("more");
  let most = STEP;
  for (const select of form.querySelectorAll("select")) {
    const choices = [...texts[columns.indexOf(select.name)].entries()];
    choices.sort((a, b) => a[1].localeCompare(b[1], "en", { numeric: true }));
    for (const [index, text] of choices) select.add(new Option(text, index));
  }
  function link(text, address) {
    const made = document.createElement("a");
    made.textContent = text;
    made.href = address;
    return made;
  }
  function draw() {
    const wanted = [...new FormData(form)]
      .filter(([, index]) => index !== "")
      .map(([name, index]) => [columns.indexOf(name), Number(index)]);
    const found = rows.filter(row => wanted.every(([column, index]) => row[column] === index));
    body.replaceChildren(...found.slice(0, most).map(row => {
      const made = document.createElement("tr");
      columns.forEach((_, column) => made.insertCell().textContent = texts[column][row[column]]);
      const [page, file] = runs[row[columns.length]];
      const places = made.insertCell();
      if (page) places.append(link("page", page), " ");
      places.append(link("results", file.split("/").map(encodeURIComponent).join("/")));
      return made;
    }));
    const shown = Math.min(most, found.length);
    document.getElementById("shown").textContent =
      `${shown.toLocaleString("en")} of ${found.length.toLocaleString("en")} rows are shown.`;
    more.hidden = shown === found.length;
    document.documentElement.dataset.drawn = "true";
  }
  form.addEventListener("change", () => { most = STEP; draw(); });
  form.addEventListener("reset", () => setTimeout(() => { most = STEP; draw(); }));
  form.addEventListener("submit", event => event.preventDefault());
  more.addEventListener("click", () => { most += STEP; draw(); });
  draw();
}
