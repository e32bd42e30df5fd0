// Markdown of a model, as elements that can do nothing.
//
// Three layers: HTML in the text is shown as text but for a few tags without attributes; the
// sanitiser lets through a short list of tags and attributes; the Content-Security-Policy of the
// page's header runs no script but the page's own. The sanitiser gives elements, so that no text
// of a model goes through innerHTML.

const kAllowed = {
  ALLOWED_TAGS: ["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em",
    "strong", "del", "a", "table", "thead", "tbody", "tr", "th", "td", "sub", "sup", "kbd", "b", "i", "u", "mark",
    "details", "summary"],
  ALLOWED_ATTR: ["href", "title", "class", "align", "start"],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  ALLOW_UNKNOWN_PROTOCOLS: false,
  ADD_URI_SAFE_ATTR: ["align", "start"],  // what is no address is not compared with those
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:)/i,
  RETURN_DOM_FRAGMENT: true,
};
const kPlainTags = /&lt;(\/?(?:br|sub|sup|kbd|b|i|u|mark|details|summary)\s*\/?)&gt;/gi;
const kTabInCode = "\uE009";

// The class of a code block tells its language; another one could look like a part of this page.
DOMPurify.addHook("uponSanitizeAttribute", (element, data) => {
  if (data.attrName === "class" && !(element.nodeName === "CODE" && /^language-[\w+#.-]{1,40}$/.test(data.attrValue))) {
    data.keepAttr = false;
  }
});
DOMPurify.addHook("afterSanitizeAttributes", (element) => {
  if (element.nodeName !== "A") return;
  element.setAttribute("target", "_blank");
  element.setAttribute("rel", "noopener noreferrer nofollow");
});

// The elements of a piece of HTML that may be kept.
function cleanFragment(html) {
  return DOMPurify.sanitize(html, kAllowed);
}

marked.use({
  gfm: true, breaks: false, mangle: false, headerIds: false,
  renderer: {
    html: (html) => escapeText(html).replace(kPlainTags, "<$1>"),
    checkbox: (isChecked) => (isChecked ? "☑ " : "☐ "),
    // A picture's address may tell its server what was said here: it is not loaded.
    // (Of what marked gives, only the address is not escaped yet.)
    image: (href, title, text) => `<a href="${escapeText(href ?? "")}">${text || title || escapeText(href || "picture")}</a>`,
  },
});

// marked's rules for emphasis, links and addresses take the square or more of the time for twice the
// text: a model that repeats itself would stop the tab. So a paragraph is read in pieces.
const kMaxInline = 2000;  // characters
const readInline = marked.Lexer.prototype.inlineTokens;
marked.Lexer.prototype.inlineTokens = function (text, tokens = []) {
  let rest = text;
  while (rest.length > kMaxInline) {
    const space = rest.lastIndexOf(" ", kMaxInline);
    const end = space > 0 ? space : kMaxInline;
    readInline.call(this, rest.slice(0, end), tokens);
    rest = rest.slice(end);
  }
  return readInline.call(this, rest, tokens);
};
// Quotes and lists in each other on one line: deeper ones are text, as marked calls itself for each.
const kTooDeep = /^(?:[ \t]*(?:>|(?:[-*+]|\d{1,9}[.)])[ \t])){25}/;
const kRule = /^ {0,3}([-*_])(?:[ \t]*\1)+[ \t]*$/;

// What marked would do by itself, so that lengths of its pieces are those of this text; but tabs in
// fenced code, which it would make spaces, stay. A fence that is still open, in an answer that comes
// or was cut, is closed: marked takes it for a paragraph as long as its last line has no end.
function normalized(text) {
  let fence = "", indent = "";
  const lines = text.replace(/\r\n|\r/g, "\n").split("\n").map((line) => {
    const mark = line.match(/^((?:[ \t]|[-*+>][ \t]|\d{1,9}[.)][ \t])*)(`{3,}|~{3,})(.*)$/);
    if (fence === "" && mark && !(mark[2][0] === "`" && mark[3].includes("`"))) {
      fence = mark[2];
      indent = mark[1].replace(/[^ \t>]/g, " ");
    } else if (mark && mark[2][0] === fence[0] && mark[2].length >= fence.length && mark[3].trim() === "") {
      fence = "";
    } else if (fence !== "") {
      return line.replace(/\t/g, kTabInCode);
    }
    if (kTooDeep.test(line) && !kRule.test(line)) return line.replace(/[^ \t\d]/, "\\$&");
    return line.replace(/^( *)(\t+)/, (_, spaces, tabs) => spaces + "    ".repeat(tabs.length));
  });
  if (fence !== "") lines.push(indent + fence);
  return lines.join("\n");
}

function withCodeHeads(fragment) {
  for (const code of fragment.querySelectorAll("pre > code")) {
    code.textContent = code.textContent.replaceAll(kTabInCode, "\t");
    const language = [...code.classList].map((each) => each.replace("language-", ""))[0] ?? "";
    const pre = code.parentElement;
    pre.tabIndex = 0;
    pre.setAttribute("role", "region");
    pre.setAttribute("aria-label", language ? `Code, ${language}` : "Code");
    highlight(code, language.toLowerCase());
    const copy = makeButton("copy", "Copy the code", () => copyFrom(copy, code.textContent));
    const block = make("div", {class: "code"}, make("div", {class: "code-head"}, make("span", {}, language || "text"), copy));
    pre.replaceWith(block);
    block.append(pre);
  }
  for (const table of fragment.querySelectorAll("table")) {
    const scroll = make("div", {class: "wide-table", tabindex: "0", role: "region", "aria-label": "Table"});
    table.replaceWith(scroll);
    scroll.append(table);
  }
  return fragment;
}

function elementsOf(tokens) {
  return withCodeHeads(cleanFragment(marked.parser(tokens)));
}

// A text that grows: blocks that are whole are made once, the last one anew each time.
class MarkdownView {
  constructor(element) {
    this.element = element;
    this.settled = 0;  // characters of the normalized text in blocks that are whole
    this.live = [];    // the nodes of the last block
  }
  // Throws nothing: what cannot be drawn is shown as text.
  update(text) {
    try {
      this.draw(text);
    } catch (error) {
      console.error(error);
      this.element.replaceChildren(make("p", {class: "said"}, text));
      this.live = [...this.element.childNodes];
      this.settled = 0;
    }
  }
  draw(text) {
    const tokens = marked.lexer(normalized(text).slice(this.settled));
    const last = tokens.findLastIndex((each) => each.type !== "space");
    const whole = tokens.slice(0, Math.max(last, 0));
    for (const node of this.live) node.remove();
    if (whole.length > 0) {
      this.element.append(elementsOf(whole));
      for (const each of whole) this.settled += each.raw.length;
    }
    const fragment = last < 0 ? document.createDocumentFragment() : elementsOf(tokens.slice(last));
    this.live = [...fragment.childNodes];
    this.element.append(fragment);
  }
  // A definition at the end of a text may be that of a link before it.
  finish(text) {
    if (/^ {0,3}\[[^\]]+\]:/m.test(text)) {
      this.element.replaceChildren();
      this.settled = 0;
    }
    this.update(text);
  }
}
