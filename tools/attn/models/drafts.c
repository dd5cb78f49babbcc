/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for what has been said before. */
#include "models/drafts.h"

#include <stdbool.h>

/* Tokens that have to be the same before a place counts, from the most to the least; and places that are gone on from.
 */
enum { LONGEST_MATCH = 3, BRANCHES = 3 };

int drafts_child(const struct drafts *drafts, int node, int32_t id)
{
    for (int i = node + 1; i < drafts->count; i++)
        if (drafts->parents[i] == node && drafts->ids[i] == id)
            return i;
    return -1;
}

static void put(struct drafts *drafts, int32_t id, int parent)
{
    drafts->ids[drafts->count] = id;
    drafts->parents[drafts->count] = parent;
    drafts->depths[drafts->count] = parent < 0 ? 0 : drafts->depths[parent] + 1;
    drafts->count++;
}

/* Puts ids[count] into the tree behind its root, as far as there is room. */
static void put_branch(struct drafts *drafts, const int32_t *ids, int64_t count, int most)
{
    int node = 0;
    for (int64_t i = 0; i < count; i++) {
        int child = drafts_child(drafts, node, ids[i]);
        if (child < 0) {
            if (drafts->count > most)
                return;
            child = drafts->count;
            put(drafts, ids[i], node);
        }
        node = child;
    }
}

/* Whether the length tokens before end are the last ones of all. */
static bool repeats(const int32_t *ids, int64_t count, int64_t end, int length)
{
    for (int i = 1; i <= length; i++)
        if (ids[end - i] != ids[count - i])
            return false;
    return true;
}

void drafts_make(struct drafts *drafts, const int32_t *ids, int64_t count, int most)
{
    drafts->count = 0;
    put(drafts, ids[count - 1], -1);
    most = most < DRAFTS_MOST ? most : DRAFTS_MOST;
    int branches = 0;
    for (int length = LONGEST_MATCH; length > 0 && branches < BRANCHES; length--)
        for (int64_t end = count - 1; end >= length && branches < BRANCHES; end--) /* the latest places first */
            if (repeats(ids, count, end, length)) {
                const int64_t behind = count - end, room = most / BRANCHES + 1;
                put_branch(drafts, ids + end, behind < room ? behind : room, most);
                branches++;
            }
}
