#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/tokenizers/: three small tokenizers and what the `tokenizers` library does.

    python3 tests/golden/make_tokenizers.py        # needs Python 3.11 and tokenizers 0.23

qwen3/, deepseek_v3/   byte-level BPE with the exact structure of those models' tokenizer.json and a
                       vocabulary of about a thousand tokens (deepseek_v3 with a BOS template)
options/               a tiny vocabulary with the rarer options: ignore_merges, added tokens with
                       lstrip, rstrip, single_word and normalized, a literal Split, a prefix space,
                       GPT-2's pattern, BOS and EOS, Sequences everywhere, merges as "a b"
cases.json             texts -> ids, decoded texts
categories.json        the code points of each general category in Oniguruma's tables

make_tokenizer_kinds.py makes the other folders and kinds.json.

The vocabularies are trained on docstrings of Python's standard library and on the sentences below.
The output depends on nothing else: same versions, same bytes.
"""

import base64
import hashlib
import importlib
import inspect
import itertools
import json
import pathlib
import random
import struct
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

OUT = pathlib.Path(__file__).parent / "tokenizers"
MAX_IDS = 64  # longer results are stored as count and SHA-256

QWEN3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_PATTERNS = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)

SENTENCES = [
    "The router sends each token to a few experts, and the balancer watches who is busy.",
    "It's late; I'll go, they've gone, we're here, you'd know, I'm sure, he can't, she doesn't.",
    "专家并行把每一层的专家分布到许多节点上，令牌在节点之间往返。",
    "负载均衡器在模型服务时复制并移动专家，使没有一个节点过热。",
    "エキスパートは多くのランクに分散され、トークンはその間を行き来します。",
    "ひらがなとカタカナと漢字が混ざった文章です。テストを続けましょう。",
    "전문가는 여러 노드에 나뉘어 있고 토큰은 그 사이를 오갑니다. 한국어 문장입니다.",
    "Эксперты распределены по узлам, и каждый токен находит свой путь.",
    "الخبراء موزعون على العقد، وكل رمز يجد طريقه.",
    "विशेषज्ञ कई नोड पर बंटे हैं और हर टोकन अपना रास्ता पाता है।",
    "ผู้เชี่ยวชาญกระจายอยู่หลายโหนด",
    "Größe, Übermut und Straße; déjà vu, naïve façade, coöperate, Ångström, São Paulo, Žižek.",
    "Οι ειδικοί είναι μοιρασμένοι σε κόμβους.",
    "def route(tokens, experts):\n    return {t: experts[hash(t) % len(experts)] for t in tokens}\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += values[i] * 2.5e-3;  // 1024 rows\n}\r\n",
    "{\"model\": \"wideep\", \"num_experts\": 256, \"topk\": 8, \"scale\": 1.5}\n",
    "SELECT id, name FROM experts WHERE layer = 12 AND load > 3600 ORDER BY load DESC;\n",
    "2024-01-31 23:59:59 3.14159 100000 65536 1,234,567 0xFF 50% $19.99 ½ ²",
    "😀 👍 🎉 ❤️ 👩‍💻 🇩🇪 🇯🇵 ✅ → ≤ ≠ ∑ √ ∞ ™ © € £ ¥",
]

DOCSTRING_MODULES = (
    "argparse asyncio base64 bisect calendar codecs collections contextlib copy csv datetime "
    "decimal difflib dis email enum fractions functools gettext glob gzip heapq html http inspect "
    "io itertools json logging math operator os pathlib pickle platform pprint queue random re "
    "sched secrets shlex shutil socket sqlite3 statistics string subprocess tempfile textwrap "
    "threading time timeit tokenize traceback types unicodedata unittest urllib uuid "
    "weakref xml zipfile"
).split()


def training_texts():
    for name in DOCSTRING_MODULES:
        module = importlib.import_module(name)
        routines = inspect.getmembers(module, lambda x: inspect.isclass(x) or inspect.isroutine(x))
        for item in [module] + [value for _, value in routines]:
            if isinstance(item.__doc__, str):
                yield item.__doc__
    for sentence in SENTENCES:
        for _ in range(30):
            yield sentence


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def train(tokenizer, vocab_size, first_tokens=()):
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(first_tokens),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(list(training_texts()), trainer)


def added(content, special, **flags):
    return AddedToken(content, special=special, **{"normalized": False, **flags})


def make_qwen3():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split(QWEN3_PATTERN), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.post_processor = processors.ByteLevel(
        add_prefix_space=False, trim_offsets=False, use_regex=False
    )
    tokenizer.decoder = decoders.ByteLevel(
        add_prefix_space=False, trim_offsets=False, use_regex=False
    )
    train(tokenizer, 1200)
    tokenizer.add_tokens(
        [added(t, True) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
        + [added(t, False) for t in ("<tool_call>", "</tool_call>", "<think>", "</think>")]
    )
    return tokenizer


def make_deepseek_v3():
    bos, eos, pad = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split(pattern) for pattern in DEEPSEEK_PATTERNS]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 1200, [added(t, True) for t in (bos, eos, pad)])
    tokenizer.add_tokens(
        [added("<think>", False), added("</think>", False), added("<｜fim▁hole｜>", False)]
        + [added("<｜User｜>", False), added("<｜Assistant｜>", False), added("<|EOT|>", True)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, 0)]
    )
    return tokenizer


def make_options():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("::", "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel()])
    train(tokenizer, 380)
    tokenizer.add_tokens(
        [
            added("<s>", True),
            added("</s>", True),
            added("<left>", True, lstrip=True),
            added("<right>", False, rstrip=True),
            added("<both>", False, lstrip=True, rstrip=True),
            added("word", False, single_word=True),
            added("café", False, normalized=True),
            added("normal", False, normalized=True, single_word=True, lstrip=True),
            added("  ", False),
            added("é", False),
            added("<s><s>", False),
            added("\n<end>", False, lstrip=True),
        ]
    )
    ids = {t: tokenizer.token_to_id(t) for t in ("<s>", "</s>")}
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<s> <s> $A </s>", pair="<s> $A </s> $B", special_tokens=list(ids.items())
            ),
        ]
    )
    result = json.loads(tokenizer.to_str())
    # A word that no merge makes, and a hole before it would renumber the added tokens: put it in
    # the middle by giving it the place of the last merge's token.
    vocab, merges = result["model"]["vocab"], result["model"]["merges"]
    last = "".join(merges.pop())
    vocab["Ġbalancer"] = vocab.pop(last)
    result["model"]["merges"] = [" ".join(pair) for pair in merges]
    return Tokenizer.from_str(json.dumps(result)), json.dumps(result, ensure_ascii=False)


def scripts_and_symbols():
    return [
        "", " ", "  ", "a", "\x00", "\x7f", "Hello, world!", " Hello", "Hello ", "hello  world",
        *SENTENCES,
        "中文和English混排，带标点。", "「日本語」の文章、ですよ！", "カタカナひらがな漢字々〆ヶ",
        "ｶﾀｶﾅ ﾊﾝｶｸ ＡＢＣ１２３", "ー゛゜ヽヾゝゞ・", "龥龦鿿㐀𠀀𪜀𫝀𮯠", "〇一二三 ㊀㊁ ㈠ ⼀ ⺀",
        "한국어 문장과 한글 자모", "\u1112\u1161\u11ab\u1100\u1173\u11af", "\u1100\u1161\u11a8\u3131\u314f",
        "각\u11a8", "ᄒ\u1161", "\ua960\ud7b0", "한글\u302e\u302f",
        "مرحبا بالعالم ١٢٣ ۴۵۶", "שָׁלוֹם עוֹלָם", "ܫܠܡܐ", "नमस्ते दुनिया १२३", "क्षत्रिय ज़्यादा",
        "\u0915\u093c \u0958 \u0929 \u0928\u093c", "বাংলা ভাষা ৳৪২", "ਪੰਜਾਬੀ ગુજરાતી ଓଡ଼ିଆ தமிழ் తెలుగు ಕನ್ನಡ മലയാളം",
        "สวัสดีชาวโลก ๑๒๓ ๏", "ລາວ ພາສາ", "မြန်မာ ဘာသာ", "ភាសាខ្មែរ ៛", "བོད་སྐད་ ༡༢༣ ༎", "ქართული ႠႡ Ა",
        "Հայերեն և", "ᎣᏏᏲ ꮳꮃꭹ", "ⴰⵎⴰⵣⵉⵖ", "𐌰𐌱𐌲 𐍈", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 𝒳", "ᚠᚢᚦ ᛮᛯᛰ", "𒀀𒐀𒐁", "Tiếng Việt", "Türkçe İıŞş",
        "😀😃", "👩‍👩‍👧‍👦 family", "👍🏽 👍🏿", "🇩🇪🇫🇷🇺", "❤️‍🔥", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "1️⃣2️⃣#️⃣", "☺︎☺️", "🧑🏻‍🚀", "🫠🫡",
        "\U0001fae8 \U0001e4d0 \U00031350 \U0002ebf0 \U00016d40 \ua7cb \U00010d40",
        "ⅠⅡⅢ ⅳ Ⅻ ↀ", "² ³ ¹ ⁰ ⁴ ₁₂", "½ ⅓ ¼ ¾ ⅛", "①②③ ⑴ ⒈ ❶", "٣ ۳ ३ ๓ ３ 𝟛 ໓",
        "1", "12", "123", "1234", "12345", "1234567890", "0123456789" * 5, "3.14159", "1,234,567.89",
        "a1b2c3", "x²+y³", "v1.2.3-rc4", "1e-10", "0xDEADBEEF", "192.168.0.1:8080", "1st 2nd 3rd",
        "12３４٥٦७८", "１２３４５６７", "Ⅷ9Ⅸ10",
    ]


def spaces_and_lines():
    odd = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x20\x85\xa0\u1680\u180e" + "".join(
        map(chr, range(0x2000, 0x2010))
    ) + "\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
    texts = [f"a{c}b" for c in odd] + [f"a{c}{c} b {c}" for c in odd] + [f"{c}\n{c}x" for c in odd]
    return texts + [
        "\n", "\r", "\r\n", "\n\n", "\n\n\n", "\r\n\r\n", "\n\r", " \n", "\n ", " \n ", "  \n  ",
        "\t", "\t\t", "\t\tx", " \t x", "x \t\n\t y", "x\n\n\n  y", "x \n\n y", "x  \r\n  y\r\n",
        "a\r\nb\nc\rd", "line one\n  line two\n\tline three\n", "end   ", "   start", "a    b     c",
        "!\n", "! \n", "?!\r\n\r\nnext", ".\n\n  x", "()\n\t()", "a.\n", "a .\n\n b", "...\n...", "-\r-\n-",
        "x\u00a0y", "x \u00a0 y", "x\u00a0\n", "\u3000全角　空白\u3000", "zero\u200bwidth\u200cjoin\u200der\u2060\ufeff",
        "\ufeffBOM", "soft\u00adhyphen", "a\u2028b\u2029c", "\x85\x85a", "\x0b\x0c a",
        "\u180e\u180e \u180ea",
    ]


def marks_and_cases():
    texts = [
        "e\u0301", "\u00e9", "cafe\u0301 café", "a\u0308\u0304", "a\u0304\u0308", "q\u0307\u0323", "q\u0323\u0307",
        "\u1e9b\u0323", "\u212b \u212a \u2126", "\u0344", "\u0958\u0f43", "\u2adc", "\ufb1d\ufb2a", "\U0001d15e", "\uf900\ufa10\u2f800",
        "\u0301", " \u0301", "\n\u0301", "1\u0301", "!\u0301", "\u0301\u0302\u0303abc", "a" + "\u0301" * 20,
        "o\u0328\u0304 o\u0304\u0328", "\u03b1\u0313\u0342\u0345", "\u1f82", "\u0041\u030a", "Z\u0351\u0313\u0335a\u0334\u0345lgo",
        "\u1dfa\u0301\u0316 a\u1df6\u0334", "\U00011935\U00011930", "a\U00010d24\u0316", "\u0cbf\u0cd5 \u0cc6\u0cc2\u0cd5", "\u1b05\u1b35",
        "ﬁ ﬂ ﬆ ß ẞ ŉ ǰ İ ı", "Ǆ ǅ ǆ", "ſt ﬅ",
        "I'm you're he's it'll we've they'd don't", "I'M YOU'RE HE'S IT'LL WE'VE THEY'D DON'T", "'S'T'RE'VE'M'LL'D",
        "it'\u017f", "IT'\u017f x'\u017fa", "we'\u212a", "'\u017f\u017f", "'sa 'ta 'rea 'vem 'llm 'dx", "''s", "'''ll",
        "x'Re y'vE z'lL", "’s ’t ’re", "rock'n'roll", "o'clock 'tis 'twas", "s' t' 're", "'", "' s",
    ]
    return texts


def code_and_punctuation():
    marks = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    return [
        marks, " ".join(marks), *(f"{m}word" for m in marks), *(f" {m}x {m}{m}" for m in "#$'-_@\\[]"),
        "«guillemets» “quotes” ‘single’ „low‟", "—–‑‐−", "…·•‣", "†‡§¶", "¡¿", "、。，！？；：", "（）【】《》〈〉",
        "∀x∈ℝ: ∃y≤x²", "≠≡≈⊂⊃∪∩", "←↑→↓⇒⇔", "$€£¥₹₿", "°′″‰", "^~`´¨¯¸", "™®©℠", "♠♣♥♦♪♫", "┌─┐│└┘█▓",
        "__init__ _private CONST_NAME camelCase snake_case kebab-case", "a->b a=>b a::b a..b a...b",
        "if (x != y && !z) { return *p++ ^ ~mask; }", "std::vector<std::pair<int, std::string>> v{{1, \"a\"}};",
        "template <typename T> auto f(T&& t) -> decltype(t) { return t; }", "#include <vector>\n#define X(a) #a\n",
        "    def f(self, *args, **kwargs):\n        '''doc'''\n        return self.x[1:-1]\n\n\n",
        "\tif x:\n\t\tpass\n\telse:\n\t\traise ValueError(f\"{x!r:>{width}}\")\n",
        "https://example.org/path?q=1&r=%20#frag", "user.name+tag@example.org", "/usr/local/bin:/bin", "C:\\Temp\\x.txt",
        "<html><body class=\"a b\">&nbsp;&lt;</body></html>", "$x = @{[ map { $_ * 2 } 1..10 ]};",
        "\\frac{a}{b} \\alpha_{i}^{2} $$x$$", "| a | b |\n|---|---|\n| 1 | 2 |\n", "- [ ] todo\n- [x] done\n", "```python\nprint('hi')\n```\n",
        "#!/bin/sh\nset -e\nexit 0", "\x1b[31mred\x1b[0m", "a\x00b\x01c", "!!!", "???!!!...", "=====", "-----\n", "//////", "~~~~ ~~~~",
        ".a", "..a", " .a", " ..a", "a.b", "a .b", "@x #y $z", "(a)(b)", "[a][b]", "{a}{b}", "a/b/c", "a\\b\\c", "A-B_C", "-x --yy",
        "!а !ж !中 !é", " !中文", "¿qué? ¡ay!", "٪ ؟ ،", "।॥", "*emphasis* **bold** _it_", "%d %s %5.2f", "&amp;&#39;",
    ]


def with_added_tokens():
    return [
        "<|endoftext|>", "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "<think>", " <think> ", "</think></think>", "<|im_start|", "<|im_start||>", "<|im_start|><|im_end|>", "<|im_<|im_end|>",
        "a<|endoftext|>b", "a <|endoftext|> b", "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "<|IM_START|>", "<<think>>", "<thin<think>k>",
        "<｜begin▁of▁sentence｜>", "<｜begin▁of▁sentence｜>You are<｜User｜>Hi<｜Assistant｜>Yes<｜end▁of▁sentence｜>", "<｜User｜>中文<｜Assistant｜>",
        "<｜▁pad▁｜><｜▁pad▁｜>", "<｜fim▁hole｜>", "<|EOT|>", "<｜begin▁of▁sentence|>", "e\u0301<think>\u0301e",
        "<s>", "</s>", "<s><s>", "<s><s><s>", "a <s> b", "x  <left>  y", "x  <right>  y", "x  <both>  y", " \t\n<both>\u00a0\u3000y",
        "<left><left>", " <left> <left> ", "<right> <right> <right>", "<both> <both> <both>  ", "<right>  <left>", "<right>   <both>",
        "word", "a word b", "wordy sword", "word word", "_word_", "word.", "é word é", "1word word1", "wordword word", "word\u0301", "ßword中",
        "café", "cafe\u0301", "a café b", "CAFÉ café!", "normal", "a normal b", "abnormal", "normal  normal", "x   normal", "normalword",
        "é", "éa", "a\u0301e\u0301", "  ", "   ", "a  b   c", "x \n<end>", "x\n\n<end>y", "\n<end>\n<end>", "<right>\n<end>", "<right>   word",
        "a::b", "a::::b", "std::vector :: x", " :: ", "::", "the balancer", " balancer", "balancer", "the balancers", "x balancer::balancer",
    ]


def long_texts():
    return [
        "a" * 5000, " " * 5000, "\n" * 3000, " \n" * 2000, " " * 3000 + "x", "\t" * 999 + "\n", "ab" * 4000, "1" * 2000, "!" * 2000, "-" * 1001,
        "中" * 2000, "の" * 1000, "é" * 1500, "e\u0301" * 1500, "😀" * 1000, "\u0301" * 1000, "<think>" * 500, "the " * 1500, "x\r\n" * 1500,
        "aaaaaaaab" * 900, "balancer" * 700, "\u00a0" * 2000, "\u2028" * 1000, "'s" * 1500, "::" * 1200, "word " * 700,
        "xy" * 15000, " " * 26000, "中文" * 13000,  # beyond the runs that Kimi's tokenizer cuts
    ]


def random_texts(rng):
    assigned = [
        chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")
    ]
    letters = "abcXYZ019 \n\r\t'.,-_!sStT<|>中の한é\u0301ß\u00a0\u3000😀²Ⅳ"
    marks = [c for c in assigned if unicodedata.combining(c)]
    texts = ["".join(rng.choices(assigned, k=25)) for _ in range(40)]
    texts += ["".join(rng.choices(letters, k=50)) for _ in range(60)]
    texts += ["".join(rng.choices([c for c in assigned if ord(c) < 0x3000], k=30)) for _ in range(20)]
    texts += ["".join(rng.choice("aeo가く") + rng.choice(marks) for _ in range(25)) for _ in range(15)]
    return texts


def invalid_utf8(rng):
    texts = [
        b"\x80", b"\xff", b"\xc0\x80", b"\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82x", b"\xe2(\xa1", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xed\xbf\xbf",
        b"\xf0\x9f\x98", b"\xf0\x9f\x98a", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xfe\xff",
        b"ok \xe4\xb8 ok", b"\xe4\xb8\xad\xe4\xb8", b"\xf0\x9f\x98\x80\xf0\x9f", b"a\x80b\xc3c\xe2\x82d", b"<think>\xff</think>", b"\xc3\xa9\xc3",
        b"\xef\xbf\xbd", b"\xef\xbb\xbfx", b"\xf1\x80\x80\xe1\x80\xc2", b"\x00\xff\x00", b" \xff", b"\xff\n",
    ]
    texts += [bytes(rng.choices(range(256), k=30)) for _ in range(20)]
    mixed = [b"a", b" ", b"\xc3\xa9", b"\xe4\xb8\xad", b"\xf0\x9f\x98\x80", b"\xe4\xb8", b"\x9f", b"\xff", b"\n"]
    return texts + [b"".join(rng.choices(mixed, k=25)) for _ in range(20)]


def all_texts():
    """Bytes of every case, each once, in a fixed order."""
    rng = random.Random(20240131)
    texts = itertools.chain(
        scripts_and_symbols(), spaces_and_lines(), marks_and_cases(), code_and_punctuation(),
        with_added_tokens(), long_texts(), random_texts(rng), invalid_utf8(rng),
    )
    return list(dict.fromkeys(t if isinstance(t, bytes) else t.encode() for t in texts))


def stored_text(raw):
    """{"text": ...} where it is UTF-8, {"unit": ..., "times": n} of repetitions, else {"bytes": ...}."""
    for size in range(1, 20):
        if len(raw) > 400 and raw == raw[:size] * (len(raw) // size):
            return {"unit": raw[:size].decode(), "times": len(raw) // size}
    try:
        return {"text": raw.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def stored_ids(ids):
    if len(ids) <= MAX_IDS:
        return {"ids": ids}
    digest = hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()
    return {"count": len(ids), "sha256": digest}


def stored_decoded(decoded):
    raw = decoded.encode()
    return decoded if len(raw) <= 300 else {"sha256": hashlib.sha256(raw).hexdigest()}


def result(tokenizer, raw):
    """The ids with special tokens around, and what decoding the ids without them gives: "decoded"
    without special tokens in the text, where it is not the text (with U+FFFD for ill-formed parts),
    and "decoded_all" with them, where it is not the same."""
    text = raw.decode(errors="replace")
    ids = tokenizer.encode(text).ids
    bare = tokenizer.encode(text, add_special_tokens=False).ids
    if bare not in (ids, ids[1:], ids[2:-1]):
        raise ValueError("the template does more than add tokens around the text")
    decoded = tokenizer.decode(bare)
    decoded_all = tokenizer.decode(bare, skip_special_tokens=False)
    out = stored_ids(ids)
    if decoded != text:
        out["decoded"] = stored_decoded(decoded)
    if decoded_all != decoded:
        out["decoded_all"] = stored_decoded(decoded_all)
    return out


def partial_decodes(tokenizer, rng):
    """Ids that are no encoding of anything: what decode makes of stray bytes."""
    size = tokenizer.get_vocab_size()
    cases = []
    for _ in range(40):
        ids = [rng.randrange(size + 20) for _ in range(rng.randrange(1, 30))]
        both = [tokenizer.decode(ids, skip_special_tokens=skip) for skip in (True, False)]
        cases.append({"ids": ids, "decoded": both[0], "decoded_all": both[1]})
    return cases


CATEGORIES = (
    "Lu Ll Lt Lm Lo Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp L M N P S Z".split()
)


def category_ranges(name):
    """[first, last, first, last, ...] of the code points that Oniguruma's \\p{name} matches."""
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    matcher = pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed", invert=True)
    ranges = []
    for start in range(0, len(points), 4096):
        text = "".join(map(chr, points[start : start + 4096]))
        for piece, _ in matcher.pre_tokenize_str(text):
            for code_point in map(ord, piece):
                if ranges and ranges[-1] == code_point - 1:
                    ranges[-1] = code_point
                else:
                    ranges += [code_point, code_point]
    return ranges


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value + "\n", encoding="utf-8")
    print(f"{path.relative_to(OUT.parent)}: {path.stat().st_size} bytes", file=sys.stderr)


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def main():
    options, options_json = make_options()
    tokenizers = {"qwen3": make_qwen3(), "deepseek_v3": make_deepseek_v3(), "options": options}
    for name, tokenizer in tokenizers.items():
        text = options_json if name == "options" else tokenizer.to_str()
        write_json(OUT / name / "tokenizer.json", json.dumps(json.loads(text), ensure_ascii=False))
    texts = all_texts()
    rows = [
        compact({**stored_text(raw), **{n: result(t, raw) for n, t in tokenizers.items()}})
        for raw in texts
    ]
    rng = random.Random(7)
    decodes = {name: partial_decodes(t, rng) for name, t in tokenizers.items()}
    body = ",\n".join(rows)
    write_json(OUT / "cases.json", f'{{"texts": [\n{body}\n],\n"decodes": {compact(decodes)}}}')
    categories = ",\n".join(f'"{c}": {compact(category_ranges(c))}' for c in CATEGORIES)
    write_json(OUT / "categories.json", f"{{{categories}}}")
    print(f"{len(texts)} texts", file=sys.stderr)


if __name__ == "__main__":
    main()
