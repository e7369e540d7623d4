// Solves the sale's challenge while the shopper reads the page, and hands the answer over with the form.
"use strict";
(() => {
  const form = document.querySelector("form[data-challenge]");
  if (!form) return;
  const state = document.getElementById("proof-state");
  const button = form.querySelector("button");
  // Kept below the challenge's own life, so that an answer never runs out on the way.
  const REFRESH_MS = 240000;
  let solvedAt = 0;
  let working = false;
  let wanted = false;

  const say = (text) => { state.textContent = text; };

  const solve = (challenge) => new Promise((resolve, reject) => {
    const count = Math.min(4, navigator.hardwareConcurrency || 1);
    const workers = [];
    const end = (settle, value) => { workers.forEach((worker) => worker.terminate()); settle(value); };
    for (let index = 0; index < count; index += 1) {
      const worker = new Worker("/assets/altcha-pbkdf2.js");
      workers.push(worker);
      worker.onmessage = (event) => {
        if (event.data && event.data.derivedKey) end(resolve, event.data);
        else end(reject, new Error("not solved"));
      };
      worker.onerror = () => end(reject, new Error("the worker failed"));
      worker.postMessage({ type: "work", challenge, counterStart: index, counterStep: count, counterMode: "uint32", timeout: REFRESH_MS });
    }
  });

  const prepare = async () => {
    if (working) return;
    working = true;
    say("Your browser does a little computing first, so that programs cannot crowd you out.");
    try {
      const answer = await fetch(form.dataset.challenge, { cache: "no-store" });
      if (!answer.ok) throw new Error("no challenge");
      const challenge = await answer.json();
      const solution = await solve(challenge);
      form.elements.proof.value = btoa(JSON.stringify({ challenge, solution }));
      solvedAt = Date.now();
      say("Your browser is ready.");
    } catch (error) {
      const wait = 2000 + Math.random() * 3000;
      say("That did not work. Your browser tries again by itself in a moment.");
      setTimeout(() => { working = false; prepare(); }, wait);
      return;
    }
    working = false;
    if (wanted) form.requestSubmit();
  };

  form.addEventListener("submit", (event) => {
    if (Date.now() - solvedAt < REFRESH_MS) return;
    event.preventDefault();
    wanted = true;
    button.disabled = true;
    say("One moment: you join as soon as your browser is ready.");
    prepare();
  });
  // A page that comes back out of the browser's memory has used its answer up.
  window.addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    solvedAt = 0;
    wanted = false;
    button.disabled = false;
    form.elements.proof.value = "";
    prepare();
  });
  prepare();
})();
