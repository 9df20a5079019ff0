// Pages for users come before those about the work on standpipe. The other numbers are Sphinx's own.
var Scorer = {
  score: ([page, , , , score]) => (/^(decisions|contributing|changelog|architecture)/.test(page) ? score - 100 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
