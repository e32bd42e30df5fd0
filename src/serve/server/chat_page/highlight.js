// Colours for code: comments, strings, numbers and the words that most languages share. Not a
// parser: what it does not know keeps the colour of text.

const kWords = new Set(("abstract and as async await auto bool boolean break case catch char class const continue " +
  "constexpr def default defer del delete do double elif else end enum except export extends false finally float fn " +
  "for from func function global go if impl implements import in include int interface is lambda let local long loop " +
  "match mod mut namespace new nil None not null nullptr or override package pass private protected pub public raise " +
  "return self short signed sizeof static std string struct super switch template then this throw trait True False true try " +
  "type typedef typename undefined union unless unsigned until use using var virtual void where while with yield echo fi " +
  "done esac select insert update create table where group order by join on").split(" "));
const kHashComments = /^(python|py|sh|bash|shell|zsh|fish|yaml|yml|toml|ruby|rb|perl|r|make|makefile|cmake|dockerfile|ini|conf)$/;
const kDashComments = /^(sql|lua|haskell|hs)$/;
const kNoComments = /^(json|text|txt|plain|plaintext|markdown|md|diff|console|html|xml)$/;

function commentPattern(language) {
  if (kNoComments.test(language)) return null;
  if (kHashComments.test(language)) return "#[^\\n]*";
  if (kDashComments.test(language)) return "--[^\\n]*";
  return language === "" ? null : "\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?(?:\\*\\/|$)";
}

// Replaces the text of a <code> by the same text in coloured pieces.
function highlight(code, language) {
  const text = code.textContent;
  if (language === "" || /^(text|txt|plain|plaintext|markdown|md|console)$/.test(language) || text.length > 100000) return;
  const comment = commentPattern(language);
  const pattern = new RegExp(
    (comment ? `(${comment})` : "($^)") +
    // Those that must end do so soon: else every quote of a long text would be a walk to its end.
    "|(\"(?:\\\\.|[^\"\\\\\\n])*\"?|'(?:\\\\.|[^'\\\\\\n]){0,500}'|`(?:\\\\.|[^`\\\\]){0,1000}`)" +
    "|\\b(0x[\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:e[+-]?\\d+)?)\\b|\\b([A-Za-z_]\\w*)\\b", "g");
  const pieces = document.createDocumentFragment();
  let end = 0;
  for (const found of text.matchAll(pattern)) {
    const kind = found[1] ? "comment" : found[2] ? "string" : found[3] ? "number" : kWords.has(found[4]) ? "word" : "";
    if (kind === "") continue;
    pieces.append(text.slice(end, found.index), make("span", {class: `hl-${kind}`}, found[0]));
    end = found.index + found[0].length;
  }
  pieces.append(text.slice(end));
  code.replaceChildren(pieces);
}
