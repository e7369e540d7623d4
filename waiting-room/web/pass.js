// Takes an entry pass from the address's fragment (#eligibility=…), which browsers send to nobody, puts it into the
// form, and removes it from the address and the history at once. Without scripts the pass is pasted by hand.
(() => {
  const given = new URLSearchParams(location.hash.slice(1)).get("eligibility");
  const field = document.getElementById("eligibility");
  if (given === null || field === null) {
    return;
  }
  history.replaceState(null, "", location.pathname + location.search);
  field.value = given;
})();
