# SPDX-License-Identifier: Apache-2.0
"""What the text is made of: Debian packages by domain, which files of each, and under which licence.

A row is (package, regular expression on the path inside the package, extractor of extract.py, licence).
Everything comes from Debian 12 "bookworm" main, so anyone can install it.
"""

BINARY = {
    "prose": [
        ("anarchism", r"/html/(sec|append)\w+\.html$", "html", "GPL-2"),
        ("r-cran-janeaustenr", r"/data/Rdata\.rdb$", "rdb", "public domain (novels), MIT (package)"),
        ("sword-text-web", r"\.bzz$", "sword", "public domain"),
        ("sword-comm-mhcc", r"\.bzz$", "sword", "public domain"),
        ("sword-comm-tdavid", r"\.czz$", "sword", "public domain"),
        ("dict-jargon", r"\.dict\.dz$", "gz", "public domain"),
        ("dict-devil", r"\.dict\.dz$", "gz", "public domain"),
    ],
    "manual": [
        ("manpages", r"/man/man\d/.*\.gz$", "man", "mostly Linux-man-pages-copyleft"),
        ("manpages-dev", r"/man/man\d/.*\.gz$", "man", "mostly Linux-man-pages-copyleft"),
        ("git-man", r"/man/man\d/.*\.gz$", "man", "GPL-2"),
        ("postgresql-doc-15", r"/html/.*\.html$", "html", "PostgreSQL"),
        ("python3.11-doc", r"/html/(howto|library|reference|tutorial|faq|using|c-api)/.*\.html$", "html", "PSF-2"),
        ("libreoffice-help-en-us", r"/help/en-US/text/.*\.html$", "html", "MPL-2.0"),
        ("debian-handbook", r"/html/en-US/.*\.html$", "html", "GPL-2+ or CC-BY-SA-3.0"),
        ("debian-reference-en", r"/ch\d+\.en\.html$", "html", "GPL-2+"),
        ("developers-reference", r"/developers-reference/(?!developers-ref)[\w-]+\.html$", "html", "GPL-2+"),
    ],
    "german": [
        ("manpages-de", r"/man/de/man\d/.*\.gz$", "man", "GPL-3+"),
        ("manpages-de-dev", r"/man/de/man\d/.*\.gz$", "man", "GPL-3+"),
        ("libreoffice-help-de", r"/help/de/text/.*\.html$", "html", "MPL-2.0"),
        ("debian-handbook", r"/html/de-DE/.*\.html$", "html", "GPL-2+ or CC-BY-SA-3.0"),
        ("debian-reference-de", r"/ch\d+\.de\.html$", "html", "GPL-2+"),
        ("developers-reference-de", r"/de/(?!developers-ref)[\w-]+\.html$", "html", "GPL-2+"),
        ("debian-faq-de", r"/de/.*\.html$", "html", "GPL-2+"),
        ("maint-guide-de", r"/html/.*\.de\.html$", "html", "GPL-2+"),
        ("wesnoth-1.16-data", r"/locale/de/.*\.mo$", "mo_long", "GPL-2+"),
    ],
    "french": [
        ("manpages-fr", r"/man/fr/man\d/.*\.gz$", "man", "GPL-3+"),
        ("manpages-fr-dev", r"/man/fr/man\d/.*\.gz$", "man", "GPL-3+"),
        ("libreoffice-help-fr", r"/help/fr/text/.*\.html$", "html", "MPL-2.0"),
        ("debian-handbook", r"/html/fr-FR/.*\.html$", "html", "GPL-2+ or CC-BY-SA-3.0"),
        ("debian-reference-fr", r"/ch\d+\.fr\.html$", "html", "GPL-2+"),
        ("developers-reference-fr", r"/fr/(?!developers-ref)[\w-]+\.html$", "html", "GPL-2+"),
        ("debian-faq-fr", r"/fr/.*\.html$", "html", "GPL-2+"),
        ("maint-guide-fr", r"/html/.*\.fr\.html$", "html", "GPL-2+"),
        ("wesnoth-1.16-data", r"/locale/fr/.*\.mo$", "mo_long", "GPL-2+"),
    ],
    "python": [
        ("libpython3.11-stdlib", r"\.py$", "text", "PSF-2"),
        ("python3-django", r"\.py$", "text", "BSD-3"),
        ("python3-networkx", r"\.py$", "text", "BSD-3"),
        ("python3-numpy", r"\.py$", "text", "BSD-3"),
        ("python3-sklearn", r"\.py$", "text", "BSD-3"),
        ("python3-sympy", r"\.py$", "text", "BSD-3"),
        ("python3-twisted", r"\.py$", "text", "MIT"),
    ],
}

# Debian source packages: upstream tarball, files *.c and *.h.
SOURCE = {
    "c": [
        ("c-ares", "MIT"), ("curl", "curl (MIT-like)"), ("freetype", "FTL or GPL-2"), ("jansson", "MIT"),
        ("libevent", "BSD-3"), ("libsodium", "ISC"), ("libuv1", "MIT"), ("libzstd", "BSD-3 or GPL-2"),
        ("lua5.4", "MIT"), ("mbedtls", "Apache-2.0"), ("musl", "MIT"), ("nginx", "BSD-2"), ("redis", "BSD-3"),
        ("sqlite3", "public domain"), ("tiff", "libtiff (MIT-like)"), ("zlib", "Zlib"),
    ],
}

# Message catalogues whose German and French translations become sentence pairs.
CATALOGUES = [
    ("aptitude-common", "GPL-2+"), ("digikam-data", "GPL-2+"), ("evolution-common", "LGPL-2+"),
    ("gcc-12-locales", "GPL-3+"), ("gimp-data", "GPL-3+"), ("git", "GPL-2"), ("gnome-control-center-data", "GPL-2+"),
    ("gnucash-common", "GPL-2+"), ("krita-l10n", "GPL-2+"), ("kstars-data", "GPL-2+"),
    ("libreoffice-l10n-de", "MPL-2.0"), ("libreoffice-l10n-fr", "MPL-2.0"), ("vlc-l10n", "GPL-2+"),
    ("wesnoth-1.16-data", "GPL-2+"),
]

# The office suite's help has the same pages, with the same paragraph ids, in every language.
ALIGNED_HELP = {"en": "libreoffice-help-en-us", "de": "libreoffice-help-de", "fr": "libreoffice-help-fr"}

DOMAINS = ["prose", "manual", "german", "french", "python", "c", "math", "translate"]
