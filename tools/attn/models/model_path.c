/* SPDX-License-Identifier: Apache-2.0 */
/* People give weights where a folder is expected: a GGUF file, or one of the folder's own. */
#include "models/model_path.h"

#include <string.h>
#include <sys/stat.h>

#include "io/bytes.h"
#include "io/forms.h"

attn_status model_path_check(const char *path, bool or_tokenizer)
{
    struct stat info;
    struct file_bytes *bytes;
    if (strcmp(path, "-") == 0 || stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return ATTN_OK;
    CHECK(file_bytes_open(&bytes, path));
    attn_status status = form_refuse_foreign(bytes->data, bytes->size, path);
    const bool text = form_of_bytes(bytes->data, bytes->size) == FORM_UNKNOWN;
    file_bytes_release(bytes);
    if (status == ATTN_OK && !(or_tokenizer && text))
        status = io_fail(ATTN_INVALID_FILE, "%s is a file; expected a model's folder%s", path,
                         or_tokenizer ? ", or a tokenizer.json" : "");
    return status;
}
