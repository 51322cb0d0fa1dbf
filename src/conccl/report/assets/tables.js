// Tables that sort by a click on a heading, filter as one types, and show their first rows until asked for all.

class SortableTable {
  constructor(block) {
    this.rows = [...block.querySelectorAll("tbody tr")];
    this.body = block.querySelector("tbody");
    this.heads = [...block.querySelectorAll("thead th")];
    this.input = block.querySelector("input[type=search]");
    this.output = block.querySelector("output");
    this.visible = Number(block.dataset.visible);
    this.all = this.rows.length <= this.visible;
    this.heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => this.sort(column)));
    if (this.input) this.input.addEventListener("input", () => this.show());
    if (!this.all) {
      this.more = element("button", { type: "button", class: "more" });
      this.more.addEventListener("click", () => { this.all = !this.all; this.show(); });
      block.append(this.more);
    }
    this.show();
  }

  // Numbers go largest first and names from A, at the first click; what is not known always stands last.
  sort(column) {
    const head = this.heads[column];
    const numeric = head.classList.contains("numeric");
    const before = head.getAttribute("aria-sort");
    const descending = before ? before === "ascending" : numeric;
    for (const other of this.heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const key = (row) => {
      const cell = row.cells[column];
      if (!numeric) return cell.textContent.toLowerCase();
      return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
    };
    const keyed = this.rows.map((row, place) => ({ row, place, key: key(row) }));
    keyed.sort((a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.place - b.place;
      const order = a.key < b.key ? -1 : a.key > b.key ? 1 : 0;
      return (descending ? -order : order) || a.place - b.place;
    });
    this.rows = keyed.map((entry) => entry.row);
    this.body.append(...this.rows);
    this.show();
  }

  // Every word must be somewhere in the row; a shortened name is searched whole.
  show() {
    const words = this.input ? this.input.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
    const text = (row) => [...row.cells].map((cell) => `${cell.textContent} ${cell.title}`).join(" ").toLowerCase();
    const matches = words.length ? this.rows.filter((row) => { const whole = text(row); return words.every((word) => whole.includes(word)); }) : this.rows;
    const shown = new Set(this.all || words.length ? matches : matches.slice(0, this.visible));
    for (const row of this.rows) row.hidden = !shown.has(row);
    if (this.output) this.output.textContent = words.length ? `${matches.length} of ${this.rows.length}` : "";
    if (this.more) {
      this.more.hidden = words.length > 0;
      this.more.textContent = this.all ? `Show the first ${this.visible}` : `Show all ${this.rows.length}`;
    }
  }
}
