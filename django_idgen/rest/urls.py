"""The native API: ``path("idgen/", include("django_idgen.rest.urls"))``.

=======================================  ===================  =============================
``generators/<alias>/ids``               GET, POST            ids of a generator
``generators/<alias>/leases``            POST                 borrow a worker id
``generators/<alias>/leases/renew``      POST
``generators/<alias>/leases/release``    POST
``tags/``                                GET, POST            list, make
``tags/<tag>``                           GET, PATCH           read, change
``tags/<tag>/ids``                       GET, POST            ids of a tag
``tags/<tag>/segment``                   POST                 a whole segment
``tags/<tag>/preload``, ``skip``,        POST
``clear``
``leases/``                              GET                  who holds which worker id
``decode``                               GET, POST            an id taken apart
``health/live``, ``health/ready``        GET                  for load balancers
``schema/``                              GET                  OpenAPI
=======================================  ===================  =============================
"""

from __future__ import annotations

from .health_urls import urlpatterns as health
from .id_urls import urlpatterns as ids
from .lending_urls import urlpatterns as lending
from .tag_urls import urlpatterns as tags

app_name = "django_idgen"
# A tag may have a slash: the longer paths go first.
urlpatterns = [*health, *ids, *lending, *tags]
