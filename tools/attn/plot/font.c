/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The glyphs of printable ASCII. Each is a string of strokes, separated by
 * spaces; a stroke is a sequence of points, a point two hexadecimal digits, x
 * and y. Capitals fill y = 0 to 9, small letters 3 to 9, descenders go to c.
 * A stroke of one point is a dot. Round shapes are polygons with cut corners:
 * at 8 to 16 pixels of height, antialiased, that reads as round.
 */
#include "font.h"

static const char *const glyphs[95] = {
    "",                                    /* space */
    "0006 09",                             /* ! */
    "0002 2022",                           /* " */
    "2019 5049 0363 0666",                 /* # */
    "615010010314556668591908 3039",       /* $ */
    "0020230300 4666694946 6009",          /* % */
    "691311203041420608193965",            /* & */
    "0002",                                /* ' */
    "2002072a",                            /* ( */
    "0022270a",                            /* ) */
    "2125 0244 4204",                      /* * */
    "2327 0545",                           /* + */
    "18190b",                              /* , */
    "0636",                                /* - */
    "09",                                  /* . */
    "500a",                                /* / */
    "203052573929070220",                  /* 0 */
    "123039 1959",                         /* 1 */
    "02203052530959",                      /* 2 */
    "01104051534424 445558491908",         /* 3 */
    "49400656",                            /* 4 */
    "500004445558491908",                  /* 5 */
    "514020020819495855441405",            /* 6 */
    "005029",                              /* 7 */
    "104051534414030110 1405081949585544", /* 8 */
    "081939575140100104154554",            /* 9 */
    "04 09",                               /* : */
    "14 18190b",                           /* ; */
    "420548",                              /* < */
    "0444 0747",                           /* = */
    "024508",                              /* > */
    "01104051532526 29",                   /* ? */
    "69290702205072766756533324253656",    /* @ */
    "093069 1656",                         /* A */
    "0009 004051534404 4455584909",        /* B */
    "6240200207294967",                    /* C */
    "00093966633000",                      /* D */
    "50000959 0444",                       /* E */
    "500009 0444",                         /* F */
    "62402002072949676535",                /* G */
    "0009 6069 0464",                      /* H */
    "0020 1019 0929",                      /* I */
    "4047291908",                          /* J */
    "0009 5005 2359",                      /* K */
    "000959",                              /* L */
    "0900356069",                          /* M */
    "09006960",                            /* N */
    "204062674929070220",                  /* O */
    "09004051544505",                      /* P */
    "204062674929070220 4669",             /* Q */
    "09004051544505 3559",                 /* R */
    "615010010314556668591908",            /* S */
    "0060 3039",                           /* T */
    "000729496760",                        /* U */
    "003960",                              /* V */
    "0029426980",                          /* W */
    "0069 6009",                           /* X */
    "003460 3439",                         /* Y */
    "00600969",                            /* Z */
    "20000a2a",                            /* [ */
    "005a",                                /* backslash */
    "00202a0a",                            /* ] */
    "032043",                              /* ^ */
    "0b5b",                                /* _ */
    "0022",                                /* ` */
    "0413435459 56160708193957",           /* a */
    "0009 0523335557392907",               /* b */
    "5443230507294958",                    /* c */
    "5059 5533230507293957",               /* d */
    "06565533230507294958",                /* e */
    "30201119 0333",                       /* f */
    "535b4c1c0b 5533230507293957",         /* g */
    "0009 0523335559",                     /* h */
    "0309 00",                             /* i */
    "232b1c0c 20",                         /* j */
    "0009 4307 2549",                      /* k */
    "000819",                              /* l */
    "0309 0523334449 4563738489",          /* m */
    "0309 0523335559",                     /* n */
    "233355573929070523",                  /* o */
    "030c 0523335557392907",               /* p */
    "535c 5533230507293957",               /* q */
    "0309 052333",                         /* r */
    "54431304055758491908",                /* s */
    "11182939 0333",                       /* t */
    "0307293957 5359",                     /* u */
    "032943",                              /* v */
    "0319345963",                          /* w */
    "0349 4309",                           /* x */
    "0329 431c0c",                         /* y */
    "03430949",                            /* z */
    "302011140516182a3a",                  /* { */
    "000b",                                /* | */
    "001021243526281a0a",                  /* } */
    "061525364655",                        /* ~ */
};

/* What stands for a code point without a glyph. */
static const char box[] = "0050590900";

static const int gap = 3, space_advance = 4;

static unsigned char digit(char c)
{
    return (unsigned char)(c <= '9' ? c - '0' : c - 'a' + 10);
}

void font_glyph(struct font_glyph *glyph, uint32_t code_point)
{
    const char *strokes = code_point >= 0x20 && code_point < 0x7f ? glyphs[code_point - 0x20] : box;
    int width = 0;
    glyph->count = 0;
    struct font_point last = {0, 0};
    int points = 0; /* of this stroke */
    for (const char *c = strokes; *c != '\0'; c += 2) {
        if (*c == ' ') {
            points = 0;
            c++;
        }
        struct font_point point = {digit(c[0]), digit(c[1])};
        /* A stroke begins as a dot, which its second point stretches to a line. */
        if (points < 2)
            glyph->count += points == 0;
        else
            glyph->count++;
        glyph->segments[glyph->count - 1] = (struct font_segment){points == 0 ? point : last, point};
        last = point;
        points++;
        if (point.x > width)
            width = point.x;
    }
    glyph->advance = glyph->count > 0 ? width + gap : space_advance;
}

uint32_t font_decode(const char **text)
{
    const unsigned char *s = (const unsigned char *)*text;
    static const uint32_t smallest[] = {0, 0x80, 0x800, 0x10000};
    int more = s[0] < 0x80                    ? 0
               : s[0] >= 0xc2 && s[0] <= 0xdf ? 1
               : s[0] >= 0xe0 && s[0] <= 0xef ? 2
               : s[0] >= 0xf0 && s[0] <= 0xf4 ? 3
                                              : -1;
    uint32_t code = more == 0 ? s[0] : s[0] & (0x3fu >> (more > 0 ? more : 0));
    /* A terminator is no continuation byte, so this never reads past the text. */
    for (int i = 1; i <= more; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            more = -1;
            break;
        }
        code = code << 6 | (s[i] & 0x3fu);
    }
    if (more < 0 || code < smallest[more] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        (*text)++;
        return 0xfffd;
    }
    *text += more + 1;
    return code;
}

int font_width(const char *text)
{
    int width = 0;
    while (*text != '\0') {
        struct font_glyph glyph;
        font_glyph(&glyph, font_decode(&text));
        width += glyph.advance;
    }
    return width > gap ? width - gap : 0;
}
