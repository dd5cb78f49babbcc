/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tokens a rank holds: attn_mpi_ranges() and attn_mpi_local_tokens(), for which no other rank is asked.
 */
#include "attn/mpi_plan.h"

#include "attn/attn.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void assert_said(const char *sentence)
{
    if (!strstr(attn_last_error(), sentence))
        print_error("the sentence is: %s\nexpected: %s\n", attn_last_error(), sentence);
    assert_non_null(strstr(attn_last_error(), sentence));
}

static void test_ranges(void **state)
{
    (void)state;
    attn_mpi_config config = attn_mpi_config_default();
    attn_mpi_range ranges[4];
    int64_t num = -1;
    /* 10 tokens on 3 ranks: 4, 3, 3 */
    assert_int_equal(attn_mpi_ranges(&config, 10, 3, 1, ranges, 4, &num), ATTN_OK);
    assert_int_equal(num, 1);
    assert_true(ranges[0].first == 4 && ranges[0].count == 3);
    /* in six pieces 2 2 2 2 1 1: rank 0 has the first and the last, rank 2 two neighbours */
    config.placement = ATTN_MPI_ZIGZAG;
    assert_int_equal(attn_mpi_ranges(&config, 10, 3, 0, ranges, 4, &num), ATTN_OK);
    assert_int_equal(num, 2);
    assert_true(ranges[0].first == 0 && ranges[0].count == 2 && ranges[1].first == 9 && ranges[1].count == 1);
    assert_int_equal(attn_mpi_ranges(&config, 10, 3, 2, ranges, 4, &num), ATTN_OK);
    assert_int_equal(num, 1);
    assert_true(ranges[0].first == 4 && ranges[0].count == 4);
    /* stripes of 3: 0-2, 3-5, 6-8, 9 */
    config.placement = ATTN_MPI_STRIPED;
    config.stripe = 3;
    assert_int_equal(attn_mpi_ranges(&config, 10, 3, 0, ranges, 1, &num), ATTN_OK);
    assert_int_equal(num, 2); /* of which one was written */
    assert_int_equal(attn_mpi_ranges(&config, 10, 3, 0, ranges, 4, NULL), ATTN_OK);
    assert_true(ranges[0].first == 0 && ranges[0].count == 3 && ranges[1].first == 9 && ranges[1].count == 1);
    /* Every token is held once, also where there are fewer than ranks. */
    for (int placement = 0; placement < 3; placement++)
        for (int64_t tokens = 0; tokens < 40; tokens++)
            for (int ranks = 1; ranks < 9; ranks++) {
                int held[40] = {0};
                config.placement = (attn_mpi_placement)placement;
                config.stripe = placement == ATTN_MPI_STRIPED ? 1 + tokens % 5 : 0;
                for (int r = 0; r < ranks; r++) {
                    attn_mpi_range all[40];
                    int64_t sum = 0;
                    assert_int_equal(attn_mpi_ranges(&config, tokens, ranks, r, all, 40, &num), ATTN_OK);
                    for (int64_t n = 0; n < num; n++) {
                        assert_true(all[n].count > 0 && (n == 0 || all[n].first > all[n - 1].first + all[n - 1].count));
                        sum += all[n].count;
                        for (int64_t t = 0; t < all[n].count; t++)
                            held[all[n].first + t]++;
                    }
                    assert_int_equal(sum, attn_mpi_local_tokens(&config, tokens, ranks, r));
                }
                for (int64_t t = 0; t < tokens; t++)
                    assert_int_equal(held[t], 1);
            }
    /* Sizes that no machine has. */
    config.placement = ATTN_MPI_ZIGZAG;
    config.stripe = 0;
    assert_int_equal(attn_mpi_ranges(&config, INT64_MAX, 1000, 999, ranges, 4, &num), ATTN_OK);
    assert_true(ranges[0].count == INT64_MAX / 2000 * 2 + 1 || ranges[0].count == INT64_MAX / 2000 * 2 + 2);
}

static void refuse_ranges(const attn_mpi_config *config, int64_t tokens, int ranks, int of, int64_t max,
                          const char *sentence)
{
    attn_mpi_range range = {-1, -1};
    int64_t num = -1;
    assert_int_equal(attn_mpi_ranges(config, tokens, ranks, of, max ? &range : NULL, max, &num), ATTN_INVALID_ARGUMENT);
    assert_said(sentence);
    assert_true(num == -1 && range.first == -1);
    if (max >= 0)
        assert_int_equal(attn_mpi_local_tokens(config, tokens, ranks, of), -1);
}

static void test_ranges_refused(void **state)
{
    (void)state;
    attn_mpi_config config = attn_mpi_config_default();
    refuse_ranges(NULL, 10, 3, 0, 1, "config is NULL");
    refuse_ranges(&config, -1, 3, 0, 1, "tokens is -1; expected 0 or more");
    refuse_ranges(&config, 10, 0, 0, 1, "ranks is 0; expected 1 or more");
    refuse_ranges(&config, 10, 3, 3, 1, "rank is 3; expected 0 to 2, as ranks is 3");
    refuse_ranges(&config, 10, 3, -1, 1, "rank is -1; expected 0 to 2");
    refuse_ranges(&config, 10, 3, 0, -1, "max_ranges is -1; expected 0 or more");
    assert_int_equal(attn_mpi_ranges(&config, 10, 3, 0, NULL, 2, NULL), ATTN_INVALID_ARGUMENT);
    assert_said("ranges is NULL; expected room for 2");
    config.placement = (attn_mpi_placement)3;
    refuse_ranges(&config, 10, 3, 0, 1, "config.placement is 3; expected 0 to 2");
    config.placement = ATTN_MPI_ZIGZAG;
    config.stripe = 4;
    refuse_ranges(&config, 10, 3, 0, 1, "config.stripe is 4; expected 0, as config.placement is not ATTN_MPI_STRIPED");
    config.stripe = -1;
    refuse_ranges(&config, 10, 3, 0, 1, "config.stripe is -1; expected 1 or more, or 0 for 512");
    config = attn_mpi_config_default();
    config.queries = -2;
    refuse_ranges(&config, 10, 3, 0, 1, "config.queries is -2; expected 0 or more");
    config = attn_mpi_config_default();
    config.keys = -3;
    refuse_ranges(&config, 10, 3, 0, 1, "config.keys is -3; expected 0 or more");
    config = attn_mpi_config_default();
    config.wire = (attn_mpi_wire)2;
    refuse_ranges(&config, 10, 3, 0, 1, "config.wire is 2; expected 0 or 1");
    config = attn_mpi_config_default();
    config.head_ranks = -1;
    refuse_ranges(&config, 10, 3, 0, 1, "config.head_ranks is -1; expected 1 or more, or 0 to have it chosen");
    config = attn_mpi_config_default();
    config.timeout = NAN;
    refuse_ranges(&config, 10, 3, 0, 1, "config.timeout is nan; expected 0 or more seconds");
    config = attn_mpi_config_default();
    config.struct_size = 1;
    refuse_ranges(&config, 10, 3, 0, 1, "config.struct_size is 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_ranges_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
