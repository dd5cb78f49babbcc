/* SPDX-License-Identifier: Apache-2.0 */
#include "replay.h"
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
int __wrap_attn_cpu_has(const char *features);
int __wrap_attn_cpu_permits_matrix(void);
int __wrap_attn_cpu_has(const char *features) { (void)features; return 1; }
int __wrap_attn_cpu_permits_matrix(void) { return 1; }
int main(int argc, char **argv)
{
    const char *isa = argc > 1 ? argv[1] : "avx512";
    const char *only = argc > 2 ? argv[2] : "";
    int measure = argc > 3 ? atoi(argv[3]) : 0;
    printf("%-24s", isa);
    for (int t = 2; t <= 256; t *= 2) printf("  %6d", t);
    puts("");
    for (const struct scaling_shape *s = scaling_shapes; s->name; s++) {
        if (!scaling_shape_has(s, isa) || (getenv("F") ? strcmp(s->name, only) : !strstr(s->name, only))) continue;
        printf("%-24s", s->name);
        double one = 0;
        for (int t = getenv("F") ? 1 : 2; t <= 256; t *= 2) {
            struct scaling_call call;
            struct scaling_tasks tasks;
            struct scaling_evenness e;
            if (scaling_call_open(&call, s, isa, t, true, measure > 0) || scaling_call_begin(&call) || scaling_tasks_estimate(&call, &tasks)) return 1;
            if (measure && scaling_tasks_measure(&call, measure, &tasks)) return 1;
            if (scaling_replay(&tasks, t, &e)) return 1;
            if (t == 1 && getenv("F")[0]=='2') { printf("%.4f\n", e.busy); break; } if (t == 1) { one = e.finish; goto next; }
            if (getenv("F")) printf(" %.3f", one / t / e.finish); else
            printf(" %c%.3f%c", call.work / t >= 20 * 524288.0 ? ' ' : '(', e.evenness, call.work / t >= 20 * 524288.0 ? (e.evenness < .95 ? '*' : ' ') : ')');
            if (getenv("V")) { char text[1024]; text[0]=0; if (call.plan) attn_plan_describe(call.plan, text, sizeof text); else attn_backward_plan_describe(call.backward_plan, text, sizeof text); printf("\n   apart %d keys %d", 0, 0); printf("\n   %s: wait %.3f finish %g ", strstr(text, ": ")+2, e.waiting, e.finish);
              for (int p = 0; p < tasks.num_phases; p++) { printf(" [%d: %ld on %d]", p, (long)tasks.phases[p].count, tasks.phases[p].parallel); }
              puts(""); }
            next: scaling_tasks_free(&tasks);
            scaling_call_close(&call);
        }
        puts("");
    }
    return 0;
}
