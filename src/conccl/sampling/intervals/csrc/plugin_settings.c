/* Part of the QEMU plugin: its settings, a line each (plugin.c says which). */
#include "plugin_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct settings settings;
struct site *sites;
struct agent_trigger *events;
uint64_t site_count, event_count;

static void read_site(const char *line) {
    static uint64_t room;
    int at = 0;
    struct site site = {0};
    if (sscanf(line, "site %" SCNu64 " %" SCNx64 " %" SCNx64 " %n", &site.kind, &site.offset, &site.target, &at) != 3 || at == 0)
        stop("a site is not KIND OFFSET TARGET PATH");
    snprintf(site.path, sizeof site.path, "%s", line + at);
    sites = grown(sites, &room, site_count + 1, sizeof *sites);
    sites[site_count++] = site;
}

static void read_event(const char *line) {
    static uint64_t room;
    struct agent_trigger event = {.site = AGENT_AT_START};
    if (sscanf(line, "event - %" SCNu64 " %" SCNu64, &event.count, &event.action) != 2 &&
        (sscanf(line, "event %" SCNu64 " %" SCNu64 " %" SCNu64, &event.site, &event.count, &event.action) != 3 ||
         event.site >= site_count))
        stop("an event is not SITE COUNT ACTION");
    events = grown(events, &room, event_count + 1, sizeof *events);
    events[event_count++] = event;
}

void read_settings(const char *path) {
    FILE *file = fopen(path, "r");
    char line[1024];
    if (file == NULL)
        stop("cannot read its settings");
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "out ", 4) == 0)
            snprintf(out, sizeof out, "%.500s", line + 4);
        else if (strncmp(line, "interval ", 9) == 0)
            settings.interval = strtoull(line + 9, NULL, 10);
        else if (strncmp(line, "profile ", 8) == 0)
            settings.profile = line[8] == '1';
        else if (strncmp(line, "count ", 6) == 0)
            settings.count = line[6] == '1';
        else if (strncmp(line, "model ", 6) == 0)
            settings.model = line[6] == '1';
        else if (strncmp(line, "site ", 5) == 0)
            read_site(line);
        else if (strncmp(line, "event ", 6) == 0)
            read_event(line);
        else
            stop("a setting is not known");
    }
    fclose(file);
}
