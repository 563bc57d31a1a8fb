"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const stored = (value) => {
    try {
      if (value) localStorage.setItem("autoauto-theme", value);
      return localStorage.getItem("autoauto-theme");
    } catch {
      return null;
    }
  };
  const now = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const name = () => { button.textContent = now() === "dark" ? "Light theme" : "Dark theme"; };
  if (stored()) root.dataset.theme = stored();
  button.addEventListener("click", () => {
    root.dataset.theme = now() === "dark" ? "light" : "dark";
    stored(root.dataset.theme);
    name();
  });
  dark.addEventListener("change", name);
  button.hidden = false;
  name();
  for (const copy of document.querySelectorAll("button.copy")) copy.hidden = !navigator.clipboard;
  document.addEventListener("click", async ({ target: copy }) => {  // also for buttons that are added later
    if (!copy.matches("button.copy")) return;
    await navigator.clipboard.writeText(copy.parentElement.querySelector("code").textContent);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
})();
