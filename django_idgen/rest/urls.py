"""The native API: ``path("idgen/", include("django_idgen.rest.urls"))``.

========================================  ==========  ================================
``generators/<alias>/ids``                GET, POST   ids of a generator
``generators/<alias>/leases``             GET, POST   how it lends; borrow a worker id
``generators/<alias>/leases/renew``       POST        move the end up
``generators/<alias>/leases/release``     POST        give back
``generators/<alias>/leases/renew-seen``  POST        for a scheduler
``tags/``                                 GET, POST   list, make
``tags/<tag>``                            GET, PATCH  read, change
``tags/<tag>/ids``                        GET, POST   ids of a tag
``tags/<tag>/segment``                    GET, POST   whose ids; a whole segment
``tags/<tag>/preload``                    POST        load ids ahead
``tags/<tag>/skip``                       POST        skip ids, never back
``tags/<tag>/clear``                      POST        let go of ids held here
``tags/<tag>/pause``                      POST        give out none
``tags/<tag>/resume``                     POST        go on
``leases/``                               GET         who holds which worker id
``leases/<alias>/<worker>/release``       POST        free one by hand
``decode``                                GET, POST   an id taken apart
``health/live``                           GET         whether the process answers
``health/ready``                          GET         whether it can give out ids
``schema/``                               GET         OpenAPI
========================================  ==========  ================================
"""

from __future__ import annotations

from .health_urls import urlpatterns as health
from .id_urls import urlpatterns as ids
from .lending_urls import urlpatterns as lending
from .tag_urls import urlpatterns as tags

app_name = "django_idgen"
# A tag may have a slash: the longer paths go first.
urlpatterns = [*health, *ids, *lending, *tags]
